import {
  Attributes,
  type AttributeWriter,
  listAttributes,
  NetlinkDecodeError,
} from "./attributes.ts";

/**
 * Expressions of nftables rules (linux/netfilter/nf_tables.h), the few that podnet's rules are made of. A rule runs them in order;
 * values pass through registers, which share one memory: 1 to 4 are 16 bytes each, 8 to 23 the same memory in pieces of 4 bytes
 * (8 is the begin of 1, 12 the begin of 2). Register 0 is the verdict. All numbers are in network byte order on the wire.
 */
export type Expression =
  | { readonly kind: "meta"; readonly key: MetaKey; readonly into: number }
  | {
      readonly kind: "payload";
      readonly base: PayloadBase;
      readonly offset: number;
      readonly length: number;
      readonly into: number;
    }
  | {
      readonly kind: "compare";
      readonly register: number;
      readonly equal: boolean;
      readonly value: Uint8Array;
    }
  /** Keeps the bits of `mask`, in the same register. */
  | { readonly kind: "mask"; readonly register: number; readonly mask: Uint8Array }
  /** Ends the rule unless the set has the key (has it not, with `invert`); `into` takes a map's data, 0 its verdict. */
  | {
      readonly kind: "lookup";
      readonly set: string;
      readonly register: number;
      readonly into?: number;
      readonly invert?: boolean;
    }
  | { readonly kind: "verdict"; readonly verdict: Verdict }
  | { readonly kind: "masquerade" }
  | {
      readonly kind: "dnat";
      readonly family: 4 | 6;
      readonly address: number;
      readonly port: number;
    }
  /** The type of the destination address in the routing tables: `RTN_LOCAL` is 2. */
  | { readonly kind: "destinationType"; readonly into: number }
  /** Bits of the connection's state (IPS_*): IPS_DST_NAT is 0x20. */
  | { readonly kind: "connectionStatus"; readonly into: number };

export type Verdict =
  | { readonly kind: "accept" | "drop" | "return" }
  | { readonly kind: "jump" | "goto"; readonly chain: string };

const metaKeys = { mark: 3, iifname: 6, oifname: 7, nfproto: 15, l4proto: 16 } as const;
export type MetaKey = keyof typeof metaKeys;
const payloadBases = { link: 0, network: 1, transport: 2 } as const;
export type PayloadBase = keyof typeof payloadBases;

const NFTA_LIST_ELEM = 1;
const NFTA_EXPR_NAME = 1;
const NFTA_EXPR_DATA = 2;
const NFTA_DATA_VALUE = 1;
const NFTA_DATA_VERDICT = 2;
const NFTA_VERDICT_CODE = 1;
const NFTA_VERDICT_CHAIN = 2;
const verdictCodes = { drop: 0, accept: 1, jump: -3, goto: -4, return: -5 } as const;
const NFPROTO_IPV4 = 2;
const NFPROTO_IPV6 = 10;
const NFT_NAT_DNAT = 1;
const NFT_FIB_RESULT_ADDRTYPE = 3;
const NFTA_FIB_F_DADDR = 2;
const NFT_CT_STATUS = 2;

/** Four bytes in network byte order. */
export function bigEndian(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0, 0);
  return bytes;
}

/** NFTA_LIST_ELEM for each expression, as NFTA_RULE_EXPRESSIONS holds them. */
export function emitExpressions(writer: AttributeWriter, expressions: readonly Expression[]): void {
  for (const expression of expressions) {
    const { name, numbers = [], nested } = layoutOf(expression);
    writer.fork(NFTA_LIST_ELEM).attributeText(NFTA_EXPR_NAME, name).fork(NFTA_EXPR_DATA);
    for (const [type, value] of numbers) {
      if (typeof value === "string") writer.attributeText(type, value);
      else writer.attribute(type, bigEndian(value));
    }
    nested?.(writer);
    writer.join().join();
  }
}

interface Layout {
  readonly name: string;
  readonly numbers?: readonly (readonly [type: number, value: number | string])[];
  readonly nested?: (writer: AttributeWriter) => void;
}

function layoutOf(expression: Expression): Layout {
  switch (expression.kind) {
    case "meta":
      return {
        name: "meta",
        numbers: [
          [2, metaKeys[expression.key]],
          [1, expression.into],
        ],
      };
    case "payload":
      return {
        name: "payload",
        numbers: [
          [1, expression.into],
          [2, payloadBases[expression.base]],
          [3, expression.offset],
          [4, expression.length],
        ],
      };
    case "compare":
      return {
        name: "cmp",
        numbers: [
          [1, expression.register],
          [2, expression.equal ? 0 : 1],
        ],
        nested: (writer) => emitData(writer, 3, expression.value),
      };
    case "mask":
      return maskLayout(expression);
    case "lookup":
      return lookupLayout(expression);
    case "verdict":
      return {
        name: "immediate",
        numbers: [[1, 0]],
        nested: (writer) => emitVerdictData(writer, 2, expression.verdict),
      };
    default:
      return statementLayout(expression);
  }
}

type Statement = Extract<
  Expression,
  { kind: "masquerade" | "dnat" | "destinationType" | "connectionStatus" }
>;

function statementLayout(expression: Statement): Layout {
  switch (expression.kind) {
    case "masquerade":
      return { name: "masq" };
    case "dnat":
      return {
        name: "nat",
        numbers: [
          [1, NFT_NAT_DNAT],
          [2, expression.family === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6],
          [3, expression.address],
          [5, expression.port],
        ],
      };
    case "destinationType":
      return {
        name: "fib",
        numbers: [
          [3, NFTA_FIB_F_DADDR],
          [2, NFT_FIB_RESULT_ADDRTYPE],
          [1, expression.into],
        ],
      };
    case "connectionStatus":
      return {
        name: "ct",
        numbers: [
          [2, NFT_CT_STATUS],
          [1, expression.into],
        ],
      };
  }
}

function maskLayout({ register, mask }: Extract<Expression, { kind: "mask" }>): Layout {
  return {
    name: "bitwise",
    numbers: [
      [1, register],
      [2, register],
      [6, 0],
      [3, mask.length],
    ],
    nested: (writer) => {
      emitData(writer, 4, mask);
      emitData(writer, 5, new Uint8Array(mask.length));
    },
  };
}

function lookupLayout({
  set,
  register,
  into,
  invert,
}: Extract<Expression, { kind: "lookup" }>): Layout {
  return {
    name: "lookup",
    numbers: [
      [2, register],
      ...(into === undefined ? [] : [[3, into] as const]),
      [1, set],
      ...(invert === true ? [[5, 1] as const] : []),
    ],
  };
}

/** A nested NFTA_DATA_VALUE. */
export function emitData(writer: AttributeWriter, type: number, value: Uint8Array): void {
  writer.fork(type).attribute(NFTA_DATA_VALUE, value).join();
}

/** A nested NFTA_DATA_VERDICT, with the chain for jump and goto. */
export function emitVerdictData(writer: AttributeWriter, type: number, verdict: Verdict): void {
  writer
    .fork(type)
    .fork(NFTA_DATA_VERDICT)
    .attribute(NFTA_VERDICT_CODE, bigEndian(verdictCodes[verdict.kind]));
  if ("chain" in verdict) writer.attributeText(NFTA_VERDICT_CHAIN, verdict.chain);
  writer.join().join();
}

/** What NFTA_SET_ELEM_DATA and its like hold: bytes or a verdict. Throws a NetlinkDecodeError. */
export function parseData(bytes: Buffer, what: string): Buffer | Verdict {
  const data = new Attributes(bytes, what);
  const value = data.bytes(NFTA_DATA_VALUE);
  if (value !== undefined) return value;
  const verdict = data.nested(NFTA_DATA_VERDICT, what);
  const bytesOfCode = verdict?.bytes(NFTA_VERDICT_CODE);
  const code = bytesOfCode?.length === 4 ? bytesOfCode.readInt32BE(0) : undefined;
  const kind = (Object.keys(verdictCodes) as Verdict["kind"][]).find(
    (name) => verdictCodes[name] === code,
  );
  if (kind === undefined)
    throw new NetlinkDecodeError(what, `verdict ${code ?? "missing"} is unknown`);
  if (kind !== "jump" && kind !== "goto") return { kind };
  return { kind, chain: verdict?.text(NFTA_VERDICT_CHAIN) ?? "" };
}

/** The expressions of a rule by name with their attributes as bytes: enough to compare a rule with what it should be. */
export function listExpressions(bytes: Buffer): { name: string; data: Buffer }[] {
  return listAttributes(bytes, "rule expressions").map(([, element]) => {
    const attributes = new Attributes(element, "rule expression");
    return {
      name: attributes.text(NFTA_EXPR_NAME) ?? "",
      data: attributes.bytes(NFTA_EXPR_DATA) ?? Buffer.alloc(0),
    };
  });
}
