import { AttributeWriter } from "./attributes.ts";
import { messageFlag, type Request } from "./message.ts";
import {
  bigEndian,
  type Expression,
  emitData,
  emitExpressions,
  emitVerdictData,
  type Verdict,
} from "./nftables-expressions.ts";

/**
 * nfnetlink messages of nftables (linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h): after the netlink header
 *
 *   0        1         2             4
 *   | family | version | resource id | attributes; numbers in network byte order |
 *
 * Changes are sent between BATCH_BEGIN and BATCH_END: the kernel does all of them or none.
 */
const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;
const NFNL_BATCH_GENID = 1;
export const NFNL_HEADER = 4;
export const nftMessage = {
  newTable: 0,
  delTable: 2,
  newChain: 3,
  getChain: 4,
  delChain: 5,
  newRule: 6,
  getRule: 7,
  delRule: 8,
  newSet: 9,
  delSet: 11,
  newElement: 12,
  getElement: 13,
  delElement: 14,
  newGeneration: 15,
  getGeneration: 16,
} as const;
const families = { inet: 1, ip: 2, bridge: 7, ip6: 10 } as const;
const hooks = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;

/** A table's name is unique in its family and namespace. */
export interface NftTable {
  readonly family: keyof typeof families;
  readonly name: string;
}

/** A base chain has a `hook`; its policy is accept. */
export interface NftChain {
  readonly name: string;
  readonly hook?: {
    readonly type: "nat" | "filter";
    readonly at: keyof typeof hooks;
    readonly priority: number;
  };
}

/** Types of keys and data as `nft` numbers and sizes them (its own affair: the kernel knows lengths only). */
const types = {
  ipv4_addr: [7, 4],
  ipv6_addr: [8, 16],
  ether_addr: [9, 6],
  inet_proto: [12, 1],
  inet_service: [13, 2],
  mark: [19, 4],
  ifname: [41, 16],
} as const;
export type NftType = keyof typeof types;

/** A set, or with `data` a map. Several types make a concatenation, each part padded to 4 bytes. */
export interface NftSet {
  readonly name: string;
  readonly key: readonly NftType[];
  readonly data?: readonly NftType[] | "verdict";
}

/** `key` and `data` have the lengths that the set's types give. `comment` is text of at most 127 bytes. */
export interface NftElement {
  readonly key: Uint8Array;
  readonly data?: Uint8Array | Verdict;
  readonly comment?: string;
}

/** One change in a batch. `add` of a table, chain or set that is there already changes nothing; `add rule` always appends. */
export type NftChange =
  | { readonly kind: "add-table" | "delete-table" }
  | { readonly kind: "add-chain"; readonly chain: NftChain }
  /** `flush-chain` removes the rules of a chain and keeps it. */
  | { readonly kind: "delete-chain" | "flush-chain"; readonly chain: string }
  | {
      readonly kind: "add-rule";
      readonly chain: string;
      readonly expressions: readonly Expression[];
      readonly comment?: string;
    }
  | { readonly kind: "delete-rule"; readonly chain: string; readonly handle: bigint }
  | { readonly kind: "add-set"; readonly set: NftSet }
  | { readonly kind: "delete-set"; readonly set: string }
  /** EEXIST when the key is there; ENOENT when set, or a verdict's chain, is not. */
  | { readonly kind: "add-element"; readonly set: string; readonly element: NftElement }
  /** ENOENT when the key is not there. */
  | { readonly kind: "delete-element"; readonly set: string; readonly key: Uint8Array };

const NFTA_TABLE_NAME = 1;
const NFTA_TABLE_FLAGS = 2;
const NFTA_CHAIN_NAME = 3;
const NFTA_CHAIN_HOOK = 4;
const NFTA_CHAIN_POLICY = 5;
const NFTA_CHAIN_TYPE = 7;
const NFTA_RULE_CHAIN = 2;
const NFTA_RULE_HANDLE = 3;
const NFTA_RULE_EXPRESSIONS = 4;
const NFTA_RULE_USERDATA = 7;
const NFTA_SET_NAME = 2;
const NFTA_LIST_ELEM = 1;
/** Attributes of an element list and of an element. */
export const setAttribute = { set: 2, elements: 3, key: 1, data: 2, userData: 6 } as const;
const NFT_SET_MAP = 8;
const NFT_DATA_VERDICT = 0xffffff00;
const NF_ACCEPT = 1;

/** The nfnetlink header of a message, which attributes follow. */
export function nfHeader(family: number, resourceId = 0): AttributeWriter {
  return new AttributeWriter()
    .u8(family)
    .u8(0)
    .raw(Uint8Array.of(resourceId >>> 8, resourceId & 255));
}

/** A message of nftables. */
export function nftRequest(message: number, flags: number, writer: AttributeWriter): Request {
  return { type: (NFNL_SUBSYS_NFTABLES << 8) | message, flags, body: writer.finish() };
}

/** Every table attribute of a message but a table's own is number 1. */
export function aboutTable(table: NftTable): AttributeWriter {
  return nfHeader(families[table.family]).attributeText(NFTA_TABLE_NAME, table.name);
}

/** The first message of a batch. With `generation` the batch fails with ERESTART once the ruleset has changed since. */
export function emitBatchBegin(generation?: number): Request {
  const writer = nfHeader(0, NFNL_SUBSYS_NFTABLES);
  if (generation !== undefined) writer.attribute(NFNL_BATCH_GENID, bigEndian(generation));
  return { type: NFNL_MSG_BATCH_BEGIN, flags: 0, body: writer.finish() };
}

export function emitBatchEnd(): Request {
  return { type: NFNL_MSG_BATCH_END, flags: 0, body: nfHeader(0, NFNL_SUBSYS_NFTABLES).finish() };
}

/** The message of one change. Throws a RangeError for a comment or a key that can't be. */
export function emitChange(table: NftTable, change: NftChange): Request {
  const writer = aboutTable(table);
  const { create, exclusive, append } = messageFlag;
  switch (change.kind) {
    case "add-table":
      return nftRequest(
        nftMessage.newTable,
        create,
        writer.attribute(NFTA_TABLE_FLAGS, bigEndian(0)),
      );
    case "delete-table":
      return nftRequest(nftMessage.delTable, 0, writer);
    case "add-chain":
      return nftRequest(nftMessage.newChain, create, emitChain(writer, change.chain));
    case "delete-chain":
      return nftRequest(
        nftMessage.delChain,
        0,
        writer.attributeText(NFTA_CHAIN_NAME, change.chain),
      );
    case "flush-chain":
      return nftRequest(nftMessage.delRule, 0, writer.attributeText(NFTA_RULE_CHAIN, change.chain));
    case "add-rule":
      return nftRequest(nftMessage.newRule, create | append, emitRule(writer, change));
    case "delete-rule":
      return nftRequest(
        nftMessage.delRule,
        0,
        writer
          .attributeText(NFTA_RULE_CHAIN, change.chain)
          .attribute(NFTA_RULE_HANDLE, u64(change.handle)),
      );
    case "add-set":
      return nftRequest(nftMessage.newSet, create, emitSet(writer, change.set));
    case "delete-set":
      return nftRequest(nftMessage.delSet, 0, writer.attributeText(NFTA_SET_NAME, change.set));
    case "add-element":
      return nftRequest(
        nftMessage.newElement,
        create | exclusive,
        emitElements(writer, change.set, [change.element]),
      );
    case "delete-element":
      return nftRequest(
        nftMessage.delElement,
        0,
        emitElements(writer, change.set, [{ key: change.key }]),
      );
  }
}

function u64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value, 0);
  return bytes;
}

function emitChain(writer: AttributeWriter, { name, hook }: NftChain): AttributeWriter {
  writer.attributeText(NFTA_CHAIN_NAME, name);
  if (hook === undefined) return writer;
  return writer
    .attributeText(NFTA_CHAIN_TYPE, hook.type)
    .attribute(NFTA_CHAIN_POLICY, bigEndian(NF_ACCEPT))
    .fork(NFTA_CHAIN_HOOK)
    .attribute(1, bigEndian(hooks[hook.at]))
    .attribute(2, bigEndian(hook.priority))
    .join();
}

function emitRule(
  writer: AttributeWriter,
  rule: Extract<NftChange, { kind: "add-rule" }>,
): AttributeWriter {
  writer.attributeText(NFTA_RULE_CHAIN, rule.chain).fork(NFTA_RULE_EXPRESSIONS);
  emitExpressions(writer, rule.expressions);
  writer.join();
  if (rule.comment !== undefined) writer.attribute(NFTA_RULE_USERDATA, emitComment(rule.comment));
  return writer;
}

function emitSet(writer: AttributeWriter, { name, key, data }: NftSet): AttributeWriter {
  writer
    .attributeText(NFTA_SET_NAME, name)
    .attribute(3, bigEndian(data === undefined ? 0 : NFT_SET_MAP))
    .attribute(4, bigEndian(typeNumber(key)))
    .attribute(5, bigEndian(typeLength(key)));
  if (data === "verdict")
    writer.attribute(6, bigEndian(NFT_DATA_VERDICT)).attribute(7, bigEndian(0));
  else if (data !== undefined)
    writer.attribute(6, bigEndian(typeNumber(data))).attribute(7, bigEndian(typeLength(data)));
  // The id is for messages of one batch that name a set by it: ours name sets by name, so any will do.
  return writer.attribute(10, bigEndian(1)).fork(9).join();
}

/** A concatenation's type has 6 bits for each part. */
function typeNumber(parts: readonly NftType[]): number {
  return parts.reduce((number, part) => (number << 6) | types[part][0], 0);
}

function typeLength(parts: readonly NftType[]): number {
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) return types[only][1];
  return parts.reduce((length, part) => length + ((types[part][1] + 3) & ~3), 0);
}

/** The parts of a concatenated key or value, each padded to 4 bytes. */
export function concatenate(...parts: readonly Uint8Array[]): Buffer {
  return Buffer.concat(parts.flatMap((part) => [part, new Uint8Array(-part.length & 3)]));
}

/** NFTA_SET_ELEM_LIST_*: the set and elements of it. */
export function emitElements(
  writer: AttributeWriter,
  set: string,
  elements: readonly NftElement[],
): AttributeWriter {
  writer.attributeText(setAttribute.set, set).fork(setAttribute.elements);
  for (const { key, data, comment } of elements) {
    writer.fork(NFTA_LIST_ELEM);
    emitData(writer, setAttribute.key, key);
    if (data instanceof Uint8Array) emitData(writer, setAttribute.data, data);
    else if (data !== undefined) emitVerdictData(writer, setAttribute.data, data);
    if (comment !== undefined) writer.attribute(setAttribute.userData, emitComment(comment));
    writer.join();
  }
  return writer.join();
}

/** User data as `nft` lays out a comment: type 0, length, text with a closing zero byte. */
function emitComment(comment: string): Buffer {
  const text = Buffer.from(`${comment}\0`);
  if (text.length > 128)
    throw new RangeError(`nftables comment "${comment}": longer than 127 bytes`);
  return Buffer.concat([Uint8Array.of(0, text.length), text]);
}
