import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { AttributeWriter, NetlinkDecodeError } from "../../lib/netlink/attributes.ts";
import { parseMessages } from "../../lib/netlink/message.ts";
import { emitChange, type NftElement, type NftTable } from "../../lib/netlink/nftables-codec.ts";
import {
  type Expression,
  listExpressions,
  parseData,
  type Verdict,
} from "../../lib/netlink/nftables-expressions.ts";
import { parseElements, parseGeneration, parseRule } from "../../lib/netlink/nftables-read.ts";
import { fuzz } from "../helpers/fuzz.ts";

const table: NftTable = { family: "bridge", name: "t" };
const name = fc.stringMatching(/^[a-z][a-z0-9-]{0,30}$/);
const bytes = (maxLength: number) =>
  fc.uint8Array({ minLength: 1, maxLength }).map((value) => Buffer.from(value));
const comment = fc
  .string({ unit: "grapheme", maxLength: 127 })
  .filter((text) => Buffer.byteLength(text) <= 127 && !text.includes("\0") && isWellFormed(text));
const verdict: fc.Arbitrary<Verdict> = fc.oneof(
  fc.constantFrom<Verdict>({ kind: "accept" }, { kind: "drop" }, { kind: "return" }),
  fc.tuple(fc.constantFrom("jump" as const, "goto" as const), name).map(([kind, chain]) => {
    return { kind, chain };
  }),
);
const element: fc.Arbitrary<NftElement> = fc.record(
  { key: bytes(64), data: fc.oneof(bytes(64), verdict), comment },
  { requiredKeys: ["key"], noNullPrototype: true },
);

function isWellFormed(text: string): boolean {
  return Buffer.from(text).toString() === text;
}

fuzz(
  "an nftables element that is emitted parses to itself",
  fc.property(name, element, (set, value) => {
    const { body } = emitChange(table, { kind: "add-element", set, element: value });
    assert.deepEqual(parseElements(Buffer.from(body)), [value]);
  }),
);

const number = fc.integer({ min: 0, max: 255 });
const expression: fc.Arbitrary<Expression> = fc.oneof(
  fc.record({
    kind: fc.constant("meta" as const),
    key: fc.constant("iifname" as const),
    into: number,
  }),
  fc.record({
    kind: fc.constant("payload" as const),
    base: fc.constantFrom("link" as const, "network" as const, "transport" as const),
    offset: number,
    length: number,
    into: number,
  }),
  fc.record({
    kind: fc.constant("compare" as const),
    register: number,
    equal: fc.boolean(),
    value: bytes(16),
  }),
  fc.record({ kind: fc.constant("mask" as const), register: number, mask: bytes(16) }),
  fc.record({
    kind: fc.constant("lookup" as const),
    set: name,
    register: number,
    into: number,
    invert: fc.boolean(),
  }),
  verdict.map((value): Expression => ({ kind: "verdict", verdict: value })),
  fc.constantFrom<Expression>(
    { kind: "masquerade" },
    { kind: "dnat", family: 6, address: 1, port: 2 },
    { kind: "destinationType", into: 1 },
    { kind: "connectionStatus", into: 1 },
  ),
);
/** As the kernel calls them. */
const names: Readonly<Record<Expression["kind"], string>> = {
  meta: "meta",
  payload: "payload",
  compare: "cmp",
  mask: "bitwise",
  lookup: "lookup",
  verdict: "immediate",
  masquerade: "masq",
  dnat: "nat",
  destinationType: "fib",
  connectionStatus: "ct",
};

fuzz(
  "an nftables rule that is emitted has its chain, comment and expressions in order",
  fc.property(name, comment, fc.array(expression), (chain, text, expressions) => {
    const change = { kind: "add-rule", chain, comment: text, expressions } as const;
    const rule = parseRule(Buffer.from(emitChange(table, change).body));
    assert.deepEqual([rule.chain, rule.comment], [chain, text]);
    assert.deepEqual(
      listExpressions(rule.expressions).map((one) => one.name),
      expressions.map(({ kind }) => names[kind]),
    );
  }),
);

const parsers: readonly ((body: Buffer) => unknown)[] = [
  parseElements,
  parseGeneration,
  (body) => listExpressions(parseRule(body).expressions),
  (body) => parseData(body, "data"),
];

function valueOrDecodeError(body: Buffer): void {
  for (const parse of parsers) {
    try {
      parse(body);
    } catch (error) {
      if (!(error instanceof NetlinkDecodeError)) throw error;
    }
  }
}

fuzz(
  "any bytes give nftables values or NetlinkDecodeErrors",
  fc.property(fc.uint8Array({ maxLength: 600 }), (body) => valueOrDecodeError(Buffer.from(body))),
);

/** Attributes in one another, with the few types and short values that the parsers look for. */
const { tree } = fc.letrec<{ tree: Buffer; node: Buffer }>((tie) => ({
  tree: fc
    .array(fc.tuple(fc.integer({ min: 1, max: 7 }), tie("node")), { maxLength: 3 })
    .map((attributes) => {
      const writer = new AttributeWriter();
      for (const [type, value] of attributes) writer.attribute(type, value);
      return Buffer.from(writer.finish());
    }),
  node: fc.oneof(
    { maxDepth: 6 },
    fc.uint8Array({ maxLength: 9 }).map((value) => Buffer.from(value)),
    tie("tree"),
  ),
}));

fuzz(
  "any nftables attributes give values or NetlinkDecodeErrors",
  fc.property(tree, (attributes) => {
    valueOrDecodeError(attributes);
    valueOrDecodeError(Buffer.concat([Buffer.alloc(4), attributes]));
  }),
);

const real = ["podnet", "podnet_macspoof", "podnet_portmap"].flatMap((fixture) =>
  readFileSync(`test/fixtures/netlink/nftables/${fixture}.hex`, "utf8")
    .trim()
    .split("\n")
    .flatMap((line) => parseMessages(Buffer.from(line, "hex")).map(({ body }) => body)),
);

fuzz(
  "real nftables messages with some bytes changed, or cut, give values or NetlinkDecodeErrors",
  fc.property(
    fc.constantFrom(...real),
    fc.array(fc.tuple(fc.nat(), number), { maxLength: 8 }),
    fc.nat(),
    (message, changes, cut) => {
      const body = Buffer.from(message);
      for (const [at, value] of changes) body[at % body.length] = value;
      valueOrDecodeError(body.subarray(0, cut % 4 === 0 ? cut % body.length : body.length));
    },
  ),
);
