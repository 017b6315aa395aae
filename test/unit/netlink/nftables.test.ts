import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { macSpoofFrame, macSpoofTable } from "../../../daemon/plugins/nftables/mac-spoof.ts";
import { masqueradeFrame, masqueradeTable } from "../../../daemon/plugins/nftables/masquerade.ts";
import { nftOwner } from "../../../daemon/plugins/nftables/owned.ts";
import { parseCondition } from "../../../daemon/plugins/portmap/conditions.ts";
import { portmapFrame, portmapTable } from "../../../daemon/plugins/portmap/frame.ts";
import { hostVethName } from "../../../daemon/plugins/shared/names.ts";
import { parseCidr } from "../../../lib/base/ip.ts";
import { AttributeWriter, NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import { parseMessages, type Request } from "../../../lib/netlink/message.ts";
import {
  concatenate,
  emitBatchBegin,
  emitBatchEnd,
  emitChange,
  type NftChange,
  type NftTable,
} from "../../../lib/netlink/nftables-codec.ts";
import { listExpressions, parseData } from "../../../lib/netlink/nftables-expressions.ts";
import {
  emitGetElements,
  parseElements,
  parseGeneration,
  parseRule,
} from "../../../lib/netlink/nftables-read.ts";

/**
 * The fixtures are what `nft -f` 1.0.6 sends for NAME.nft (seen by strace), a message a line without those that begin and end the batch.
 */
function fixture(name: string): { type: number; flags: number; body: Buffer }[] {
  const text = readFileSync(`test/fixtures/netlink/nftables/${name}.hex`, "utf8");
  return text
    .trim()
    .split("\n")
    .map((line) => parseMessages(Buffer.from(line, "hex")))
    .map(([message]) => {
      assert(message);
      return message;
    });
}

type Branch = readonly [type: number, value: string | Tree];
interface Tree extends ReadonlyArray<Branch> {}
const NESTED = 0x8000;

/** The attributes as a tree, sorted within each level where the kernel does not care for their order (lists have one type only). */
function tree(bytes: Buffer): Tree {
  const found: Branch[] = [];
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = bytes.readUInt16LE(at);
    const type = bytes.readUInt16LE(at + 2);
    const value = bytes.subarray(at + 4, at + length);
    found.push([type & 0x3fff, (type & NESTED) !== 0 ? tree(value) : value.toString("hex")]);
    at += (length + 3) & ~3;
  }
  return found.toSorted(([one], [other]) => one - other);
}

const NEWSET = 0xa09;
const NEWTABLE = 0xa00;
const NEWRULE = 0xa06;
const NEWELEMENT = 0xa0c;

/** What a message of this type has that two writers of the same thing need not agree on: ids of sets within a batch, what only `nft` reads, defaults. */
const left: Readonly<Record<number, readonly number[]>> = {
  [NEWSET]: [9, 10, 13],
  [NEWTABLE]: [6],
  [NEWELEMENT]: [4],
};

function canonical({ type, body }: Pick<Request, "type" | "body">): string {
  const bytes = Buffer.from(body);
  const attributes = tree(bytes.subarray(4))
    .filter(([number]) => left[type]?.includes(number) !== true)
    .map(([number, value]): Branch => {
      const isRule = type === NEWRULE && number === 4 && typeof value !== "string";
      return [number, isRule ? value.map(withoutDefaults) : value];
    });
  return `${type.toString(16)} ${bytes.toString("hex", 0, 4)} ${JSON.stringify(attributes)}`;
}

/** By the expression's name: the id of a lookup's set, and the operation of a bitwise, which is 0 for a mask. */
const defaults: Readonly<Record<string, number>> = { lookup: 4, bitwise: 6 };

function withoutDefaults([type, value]: Branch): Branch {
  if (typeof value === "string") return [type, value];
  const name = value.find(([number]) => number === 1)?.[1];
  const text =
    typeof name === "string" ? Buffer.from(name, "hex").toString().replace("\0", "") : "";
  return [
    type,
    value.map(([number, inner]) => [
      number,
      number === 2 && typeof inner !== "string"
        ? inner.filter(([one]) => one !== defaults[text])
        : inner,
    ]),
  ];
}

function assertSameAsNft(name: string, table: NftTable, changes: readonly NftChange[]): void {
  const ours = changes
    .filter(({ kind }) => kind !== "flush-chain")
    .map((change) => canonical(emitChange(table, change)));
  const theirs = fixture(name).map(canonical);
  // nft's "comment" of a table and its user data of sets are the only things that it sends more.
  assert.deepEqual(ours.toSorted(), theirs.toSorted());
}

const owner = nftOwner({ network: "blue", containerId: "c1", ifName: "eth0" });
const element = (set: string, key: Buffer, data?: Buffer | string): NftChange => ({
  kind: "add-element",
  set,
  element: {
    key,
    comment: owner.comment,
    ...(data === undefined
      ? {}
      : { data: typeof data === "string" ? { kind: "goto", chain: data } : data }),
  },
});
const hex = (text: string) => Buffer.from(text.replaceAll(" ", ""), "hex");

test("nftables: the masquerade table with elements is what nft sends for the same text", () => {
  const cidrs = [parseCidr("10.1.0.2/24"), parseCidr("fd01::2/64")];
  const v6 = "fd010000000000000000000000000002";
  assertSameAsNft("podnet", masqueradeTable, [
    ...masqueradeFrame(cidrs),
    element("masq4", hex("0a010002"), "masq4-24"),
    element("masq6", hex(v6), "masq6-64"),
    element("local4", hex("0a010002 0a010000")),
    element("local6", hex(`${v6} fd010000000000000000000000000000`)),
  ]);
});

test("nftables: the table against spoofed addresses with elements is what nft sends for the same text", () => {
  const port = Buffer.alloc(16);
  port.write(hostVethName("c1", "eth0"));
  assertSameAsNft("podnet_macspoof", macSpoofTable, [
    ...macSpoofFrame(),
    element("ports", port),
    element("own", concatenate(port, hex("020000000001"))),
  ]);
});

test("nftables: the portmap table with elements and conditions is what nft sends for the same text", () => {
  const conditions = parseCondition(["!", "-s", "192.0.2.0/25", "-i", "eth+"], 4);
  assert(typeof conditions !== "string");
  const prefixes = [parseCidr("10.1.0.0/24"), parseCidr("fd01::/64")];
  const v6 = "fd010000000000000000000000000002";
  const when = "when4-WHEN";
  const changes: NftChange[] = [
    ...portmapFrame({ prefixes, conditions: { 4: conditions, 6: [] } }),
    element("ports4", hex("06000000 1f900000"), hex("0a010002 00500000")),
    element("hostip4", hex("c0000201 11000000 14e90000"), hex("0a010002 00350000")),
    element("when4", hex("06000000 1f900000"), when),
    element("hostip-when4", hex("c0000201 11000000 14e90000"), when),
    element("answer4", hex("0a010002"), "near4-24"),
    element("near4", hex("0a010002 0a010000")),
    element("ports6", hex("06000000 1f900000"), hex(`${v6} 00500000`)),
    element(
      "hostip6",
      hex("20010db8000000000000000000000001 11000000 14e90000"),
      hex(`${v6} 00350000`),
    ),
    element("answer6", hex(v6), "near6-64"),
    element("near6", hex(`${v6} fd010000000000000000000000000000`)),
  ];
  const name = changes
    .flatMap((change) => (change.kind === "add-chain" ? change.chain.name : []))
    .find((one) => one.startsWith("when4-"));
  assert(name);
  const named = changes.map((change): NftChange => {
    const data = change.kind === "add-element" ? change.element.data : undefined;
    if (
      change.kind !== "add-element" ||
      data === undefined ||
      data instanceof Uint8Array ||
      !("chain" in data) ||
      data.chain !== when
    )
      return change;
    return { ...change, element: { ...change.element, data: { kind: "goto", chain: name } } };
  });
  assertSameAsNft("podnet_portmap", portmapTable, named);
});

test("nftables: elements that the kernel would report come back as they were emitted", () => {
  const table: NftTable = { family: "inet", name: "t" };
  const values = [
    { key: hex("0a010002"), comment: "someone" },
    { key: hex("0a010002"), data: hex("01020304") },
    { key: hex("0a010002"), data: { kind: "goto", chain: "there" } as const, comment: "ünicode" },
    { key: hex("0a010002"), data: { kind: "return" } as const },
  ];
  for (const value of values) {
    const { body } = emitChange(table, { kind: "add-element", set: "s", element: value });
    assert.deepEqual(parseElements(Buffer.from(body)), [value]);
  }
  assert.deepEqual(parseElements(Buffer.from(emitGetElements(table, "s", hex("01")).body)), [
    { key: hex("01") },
  ]);
  assert.deepEqual(parseElements(Buffer.from(emitGetElements(table, "s").body)), []);
});

test("nftables: a rule comes back with chain, comment and expressions", () => {
  const change: NftChange = {
    kind: "add-rule",
    chain: "c",
    comment: "why",
    expressions: [{ kind: "meta", key: "mark", into: 1 }, { kind: "masquerade" }],
  };
  const rule = parseRule(Buffer.from(emitChange({ family: "ip6", name: "t" }, change).body));
  assert.deepEqual([rule.chain, rule.comment, rule.handle], ["c", "why", 0n]);
  assert.deepEqual(
    listExpressions(rule.expressions).map(({ name }) => name),
    ["meta", "masq"],
  );
});

test("nftables: a batch begins bound to a generation and ends", () => {
  const words = (request: Request) => [
    request.type,
    request.flags,
    Buffer.from(request.body).toString("hex"),
  ];
  assert.deepEqual(words(emitBatchBegin()), [0x10, 0, "0000000a"]);
  assert.deepEqual(words(emitBatchBegin(258)), [0x10, 0, "0000000a0800010000000102"]);
  assert.deepEqual(words(emitBatchEnd()), [0x11, 0, "0000000a"]);
});

test("nftables: text that is too long for a comment is refused, an owner's name never is", () => {
  const table: NftTable = { family: "inet", name: "t" };
  const add = (comment: string) =>
    emitChange(table, { kind: "add-element", set: "s", element: { key: hex("00"), comment } });
  assert.throws(() => add("x".repeat(128)), RangeError);
  const long = nftOwner({
    network: "n".repeat(300),
    containerId: "ü".repeat(300),
    ifName: "e".repeat(15),
  });
  assert.equal(long.comment.length, 127);
  add(long.comment);
});

test("nftables: concatenated parts are padded to four bytes each", () => {
  assert.equal(
    concatenate(hex("06"), hex("1f90"), hex("0a010002")).toString("hex"),
    "060000001f9000000a010002",
  );
});

test("nftables: bytes that are no message give a NetlinkDecodeError", () => {
  const broken = new AttributeWriter().u32(0).fork(3).fork(1).fork(2).join().join().join().finish();
  for (const parse of [
    () => parseElements(hex("00")),
    () => parseGeneration(hex("00000000")),
    () => parseElements(broken),
    () => parseData(hex("08000200"), "data"),
    () => parseData(hex("0800020004000100"), "data"),
    () => parseRule(hex("000000000300")),
  ]) {
    try {
      parse();
    } catch (error) {
      assert.ok(error instanceof NetlinkDecodeError, String(error));
    }
  }
  assert.throws(() => parseElements(broken), NetlinkDecodeError);
  assert.throws(() => parseGeneration(hex("00000000")), NetlinkDecodeError);
});
