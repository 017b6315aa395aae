import { type Cidr, ipToBytes, maskOf, networkOf, parseCidr } from "../../../lib/base/ip.ts";
import { cniCode } from "../../../lib/cni/errors.ts";
import type { ValidAttachment } from "../../../lib/cni/types.ts";
import { concatenate, type NftChange, type NftTable } from "../../../lib/netlink/nftables-codec.ts";
import type { Expression } from "../../../lib/netlink/nftables-expressions.ts";
import type { NetworkCall, PluginCall } from "../plugin.ts";
import { asCniError } from "../shared/errors.ts";
import { drift } from "../shared/interface.ts";
import {
  isGarbage,
  type NftFrame,
  nftablesOf,
  nftOwner,
  type OwnedElement,
  putElements,
  removeElements,
  sweepElements,
  sweepOwner,
} from "./owned.ts";

/**
 * `ipMasq` of bridge and ptp: what a pod sends from its address to somewhere outside of its own subnet leaves the node under the node's address;
 * multicast excepted. As the reference does it, but with two elements an address instead of two rules:
 *
 *   map masq4 { 10.1.0.2 : goto masq4-24 }         which addresses, and how long their prefix is
 *   set local4 { 10.1.0.2 . 10.1.0.0 }             each address with its own network
 *   chain masq4-24: ip saddr . (ip daddr & 255.255.255.0) @local4 return; masquerade
 *
 * `ipMasqBackend` may say "iptables" or "nftables": podnet always uses nftables, which the kernel runs beside iptables' rules.
 */
export const masqueradeTable: NftTable = { family: "inet", name: "podnet" };
const masqueradeSets = ["masq4", "masq6", "local4", "local6"];

/** The family's number in `meta nfproto`, and where its header has the addresses. */
export const ipLayout = {
  4: { protocol: 2, source: 12, destination: 16, length: 4, second: 9 },
  6: { protocol: 10, source: 8, destination: 24, length: 16, second: 2 },
} as const;

/** Matches packets of one family: every rule of an inet table that reads addresses begins with it. */
export function matchFamily(family: 4 | 6): Expression[] {
  return [
    { kind: "meta", key: "nfproto", into: 1 },
    { kind: "compare", register: 1, equal: true, value: Uint8Array.of(ipLayout[family].protocol) },
  ];
}

/** Loads the packet's source or destination address. */
export function loadAddress(
  family: 4 | 6,
  which: "source" | "destination",
  into: number,
): Expression {
  const layout = ipLayout[family];
  return { kind: "payload", base: "network", offset: layout[which], length: layout.length, into };
}

/**
 * Masquerades what the attachment sends from these addresses (CIDR form). Elements that a former owner of an address left are taken over: the IPAM plugin
 * gave the address to this attachment. Running it twice changes nothing. Rejects with a CniError (code 5).
 */
export async function addMasquerade(call: PluginCall, addresses: readonly string[]): Promise<void> {
  const cidrs = addresses.map(parseCidr);
  if (cidrs.length === 0) return;
  const frame = { table: masqueradeTable, changes: masqueradeFrame(cidrs) };
  const options = { frame, owner: nftOwner(call), contested: () => undefined };
  try {
    await putElements(call.host, cidrs.flatMap(elementsOf), options);
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `masquerade ${addresses.join(", ")} of network "${call.network}"`,
    );
  }
}

/**
 * Takes back what `addMasquerade` did for this attachment. Idempotent; an address that has a newer owner keeps its elements. The addresses come from
 * `prevResult`; where that is missing, or not all of them are found, the attachment's elements are looked for in the whole set. Call it before the
 * addresses are given back. Rejects with a CniError (code 5).
 */
export async function deleteMasquerade(call: PluginCall): Promise<void> {
  const owner = nftOwner(call);
  const expected = (call.prevResult?.ips ?? [])
    .map((ip) => parseCidr(ip.address))
    .flatMap(elementsOf);
  try {
    const removed = await removeElements(call.host, expected, { table: masqueradeTable, owner });
    if (removed > 0 && removed === expected.length) return;
    await sweepOwner(call.host, masqueradeTable, { sets: masqueradeSets, owner });
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `end masquerading for interface "${call.ifName}" of network "${call.network}"`,
    );
  }
}

/** Rejects with a CniError (code 999) when the elements or the rules of one of these addresses are missing or somebody else's. */
export async function checkMasquerade(
  call: PluginCall,
  addresses: readonly string[],
): Promise<void> {
  const nftables = nftablesOf(call.host);
  const { id } = nftOwner(call);
  for (const address of addresses) {
    const cidr = parseCidr(address);
    for (const { set, key } of elementsOf(cidr)) {
      const element = await nftables.element(masqueradeTable, set, key);
      if (element?.comment?.startsWith(`${id} `) === true) continue;
      throw drift(call, `masquerading of ${address} lacks its element in nftables set "${set}"`);
    }
    await requireRules(call, cidr);
  }
}

async function requireRules(call: PluginCall, cidr: Cidr): Promise<void> {
  const nftables = nftablesOf(call.host);
  for (const [chain, count] of [
    [chainOf(cidr), 2],
    ["postrouting", 4],
  ] as const) {
    if ((await nftables.rules(masqueradeTable, chain)).length >= count) continue;
    throw drift(call, `rules of nftables chain "${chain}" are missing`);
  }
}

/** Removes the elements of the network's attachments that are not valid any more. Rejects with a CniError (code 5). */
export async function gcMasquerade(
  call: NetworkCall,
  valid: readonly ValidAttachment[],
): Promise<void> {
  const isMine = isGarbage(call.network, valid);
  try {
    await sweepElements(call.host, masqueradeTable, { sets: masqueradeSets, isMine });
  } catch (error) {
    throw asCniError(error, cniCode.ioFailure, `collect masquerading of network "${call.network}"`);
  }
}

function chainOf(cidr: Cidr): string {
  return `masq${cidr.family}-${cidr.prefixLength}`;
}

function elementsOf(cidr: Cidr): OwnedElement[] {
  const address = ipToBytes(cidr);
  return [
    { set: `masq${cidr.family}`, key: address, data: { kind: "goto", chain: chainOf(cidr) } },
    { set: `local${cidr.family}`, key: concatenate(address, ipToBytes(networkOf(cidr))) },
  ];
}

/** The table with its sets and base chain, and a chain for each length of prefix: the same whoever makes it. */
export function masqueradeFrame(cidrs: readonly Cidr[]): NftFrame["changes"] {
  const chains = new Map(cidrs.map((cidr) => [chainOf(cidr), cidr]));
  return [
    { kind: "add-table" },
    { kind: "add-set", set: { name: "masq4", key: ["ipv4_addr"], data: "verdict" } },
    { kind: "add-set", set: { name: "masq6", key: ["ipv6_addr"], data: "verdict" } },
    { kind: "add-set", set: { name: "local4", key: ["ipv4_addr", "ipv4_addr"] } },
    { kind: "add-set", set: { name: "local6", key: ["ipv6_addr", "ipv6_addr"] } },
    ...[...chains.values()].flatMap(prefixChain),
    {
      kind: "add-chain",
      chain: { name: "postrouting", hook: { type: "nat", at: "postrouting", priority: 100 } },
    },
    { kind: "flush-chain", chain: "postrouting" },
    ...baseRules().map(
      (expressions): NftChange => ({ kind: "add-rule", chain: "postrouting", expressions }),
    ),
  ];
}

function prefixChain(cidr: Cidr): NftChange[] {
  const { family } = cidr;
  const { second } = ipLayout[family];
  const isLocal: Expression[] = [
    ...matchFamily(family),
    loadAddress(family, "source", 1),
    loadAddress(family, "destination", second),
    { kind: "mask", register: second, mask: ipToBytes(maskOf(cidr)) },
    { kind: "lookup", set: `local${family}`, register: 1 },
    { kind: "verdict", verdict: { kind: "return" } },
  ];
  const chain = chainOf(cidr);
  return [
    { kind: "add-chain", chain: { name: chain } },
    { kind: "flush-chain", chain },
    { kind: "add-rule", chain, expressions: isLocal },
    { kind: "add-rule", chain, expressions: [{ kind: "masquerade" }] },
  ];
}

function baseRules(): Expression[][] {
  const toMulticast4: Expression[] = [
    ...matchFamily(4),
    loadAddress(4, "destination", 1),
    { kind: "mask", register: 1, mask: Uint8Array.of(0xf0, 0, 0, 0) },
    { kind: "compare", register: 1, equal: true, value: Uint8Array.of(0xe0, 0, 0, 0) },
  ];
  const toMulticast6: Expression[] = [
    ...matchFamily(6),
    { kind: "payload", base: "network", offset: ipLayout[6].destination, length: 1, into: 1 },
    { kind: "compare", register: 1, equal: true, value: Uint8Array.of(0xff) },
  ];
  const fromPod = (family: 4 | 6): Expression[] => [
    ...matchFamily(family),
    loadAddress(family, "source", 1),
    { kind: "lookup", set: `masq${family}`, register: 1, into: 0 },
  ];
  const leave: Expression = { kind: "verdict", verdict: { kind: "return" } };
  return [[...toMulticast4, leave], [...toMulticast6, leave], fromPod(4), fromPod(6)];
}
