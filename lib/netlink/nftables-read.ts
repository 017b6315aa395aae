import { Attributes, listAttributes, NetlinkDecodeError } from "./attributes.ts";
import { messageFlag, type Request } from "./message.ts";
import {
  aboutTable,
  emitElements,
  NFNL_HEADER,
  type NftElement,
  type NftTable,
  nfHeader,
  nftMessage,
  nftRequest,
  setAttribute,
} from "./nftables-codec.ts";
import { parseData } from "./nftables-expressions.ts";

/** Questions to nftables and their answers: elements of a set, rules of a chain, the ruleset's generation. */
const NFTA_RULE_CHAIN = 2;
const NFTA_RULE_HANDLE = 3;
const NFTA_RULE_EXPRESSIONS = 4;
const NFTA_RULE_USERDATA = 7;
const NFTA_GEN_ID = 1;

/** Asks for one element by its key (ENOENT when it is not there) or, without a key, for all of a set (a dump). */
export function emitGetElements(table: NftTable, set: string, key?: Uint8Array): Request {
  if (key === undefined)
    return nftRequest(
      nftMessage.getElement,
      messageFlag.dump,
      aboutTable(table).attributeText(setAttribute.set, set),
    );
  return nftRequest(nftMessage.getElement, 0, emitElements(aboutTable(table), set, [{ key }]));
}

/** Asks for the rules of a chain (a dump; older kernels send those of every chain). */
export function emitGetRules(table: NftTable, chain: string): Request {
  return nftRequest(
    nftMessage.getRule,
    messageFlag.dump,
    aboutTable(table).attributeText(NFTA_RULE_CHAIN, chain),
  );
}

/** Asks for the number of the ruleset's generation, which each change raises. */
export function emitGetGeneration(): Request {
  return nftRequest(nftMessage.getGeneration, 0, nfHeader(0));
}

function bodyOf(body: Buffer, what: string): Attributes {
  if (body.length < NFNL_HEADER)
    throw new NetlinkDecodeError(what, `${body.length} bytes are too few`);
  return new Attributes(body.subarray(NFNL_HEADER), what);
}

/** The number in an NFT_MSG_NEWGEN. Throws a NetlinkDecodeError. */
export function parseGeneration(body: Buffer): number {
  const id = bodyOf(body, "nftables generation").bytes(NFTA_GEN_ID);
  if (id === undefined || id.length < 4)
    throw new NetlinkDecodeError("nftables generation", "its number is missing");
  return id.readUInt32BE(0);
}

/** The elements in an NFT_MSG_NEWSETELEM. Throws a NetlinkDecodeError. */
export function parseElements(body: Buffer): NftElement[] {
  const list = bodyOf(body, "nftables elements").bytes(setAttribute.elements);
  if (list === undefined) return [];
  return listAttributes(list, "nftables elements").map(([, bytes]) =>
    parseElement(new Attributes(bytes, "nftables element")),
  );
}

function parseElement(attributes: Attributes): NftElement {
  const what = "nftables element";
  const key = attributes.bytes(setAttribute.key);
  const data = attributes.bytes(setAttribute.data);
  const comment = parseComment(attributes.bytes(setAttribute.userData) ?? Buffer.alloc(0));
  const keyBytes = key === undefined ? undefined : parseData(key, what);
  if (!(keyBytes instanceof Uint8Array)) throw new NetlinkDecodeError(what, "its key is missing");
  return {
    key: keyBytes,
    ...(data === undefined ? {} : { data: parseData(data, what) }),
    ...(comment === undefined ? {} : { comment }),
  };
}

/** A rule as the kernel holds it: where it is, its number, its comment and its expressions as bytes. */
export interface NftRule {
  readonly chain: string;
  readonly handle: bigint;
  readonly comment: string | undefined;
  readonly expressions: Buffer;
}

/** The rule in an NFT_MSG_NEWRULE. Throws a NetlinkDecodeError. */
export function parseRule(body: Buffer): NftRule {
  const attributes = bodyOf(body, "nftables rule");
  const handle = attributes.bytes(NFTA_RULE_HANDLE);
  return {
    chain: attributes.text(NFTA_RULE_CHAIN) ?? "",
    handle: handle?.length === 8 ? handle.readBigUInt64BE(0) : 0n,
    comment: parseComment(attributes.bytes(NFTA_RULE_USERDATA) ?? Buffer.alloc(0)),
    expressions: attributes.bytes(NFTA_RULE_EXPRESSIONS) ?? Buffer.alloc(0),
  };
}

function parseComment(userData: Buffer): string | undefined {
  let at = 0;
  while (at + 2 <= userData.length) {
    const length = userData.readUInt8(at + 1);
    if (userData.readUInt8(at) === 0)
      return userData.toString("utf8", at + 2, at + 2 + Math.max(0, length - 1));
    at += 2 + length;
  }
  return undefined;
}
