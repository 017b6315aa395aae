import { cniCode } from "../../../lib/cni/errors.ts";
import type { ValidAttachment } from "../../../lib/cni/types.ts";
import { macToBytes } from "../../../lib/netlink/attributes.ts";
import { concatenate, type NftChange, type NftTable } from "../../../lib/netlink/nftables-codec.ts";
import type { Expression } from "../../../lib/netlink/nftables-expressions.ts";
import type { NetworkCall, PluginCall } from "../plugin.ts";
import { asCniError } from "../shared/errors.ts";
import { drift } from "../shared/interface.ts";
import { canonicalMac } from "../shared/mac.ts";
import { hostVethName } from "../shared/names.ts";
import {
  isGarbage,
  nftablesOf,
  nftOwner,
  type OwnedElement,
  putElements,
  removeElements,
  sweepElements,
  sweepOwner,
} from "./owned.ts";

/**
 * `macspoofchk` of bridge: what a pod sends with another source address than its interface got is dropped where it enters the bridge, at the
 * reference's hook and priority. Two elements an attachment instead of two chains, because a port that is not checked must pass:
 *
 *   set ports { "veth0123456789a" }                        which ports are checked
 *   set own { "veth0123456789a" . 02:00:00:00:00:01 }      each port with the address that it may send from
 *   chain prerouting: iifname @ports iifname . ether saddr != @own drop
 */
export const macSpoofTable: NftTable = { family: "bridge", name: "podnet_macspoof" };
const chain = "prerouting";
const sets = ["ports", "own"];
/** IFNAMSIZ of linux/if.h. */
const nameSize = 16;
/** Where an Ethernet header has its source address. */
const etherSource = { offset: 6, length: 6 };
/** NF_BR_PRI_NAT_DST_BRIDGED of linux/netfilter_bridge.h, which nft calls dstnat. */
const priority = -300;

/**
 * Lets only frames from `mac` enter by the attachment's port. Call it before the pod's interface is up. Elements that a former owner of the port's name
 * left are taken over. Running it twice changes nothing. Rejects with a CniError (code 5).
 */
export async function addMacSpoofCheck(call: PluginCall, mac: string): Promise<void> {
  const frame = { table: macSpoofTable, changes: macSpoofFrame() };
  const options = { frame, owner: nftOwner(call), contested: () => undefined };
  try {
    await putElements(call.host, elementsOf(call, mac), options);
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `hold interface "${call.ifName}" of network "${call.network}" to hardware address ${mac}`,
    );
  }
}

/**
 * Lets an attachment send from another address than it was held to, which it may not any more. Nothing happens to one that is not checked. Rejects with a
 * CniError (code 5).
 */
export async function changeMacSpoofCheck(
  call: PluginCall,
  { from, to }: { readonly from: string; readonly to: string },
): Promise<void> {
  const owner = nftOwner(call);
  const [port, old] = elementsOf(call, from);
  if (port === undefined || old === undefined || from === to) return;
  const present = await nftablesOf(call.host).element(macSpoofTable, port.set, port.key);
  if (present?.comment?.startsWith(`${owner.id} `) !== true) return;
  await addMacSpoofCheck(call, to);
  await removeElements(call.host, [old], { table: macSpoofTable, owner });
}

/**
 * Takes back what `addMacSpoofCheck` did for this attachment. Idempotent; a newer owner of the port's name keeps its elements. The hardware
 * address comes from `prevResult`; where that is missing or not the one that was set, the elements are looked for in the whole sets. Call it when the
 * port is gone. Rejects with a CniError (code 5).
 */
export async function deleteMacSpoofCheck(call: PluginCall): Promise<void> {
  const owner = nftOwner(call);
  const reported = call.prevResult?.interfaces.find(
    ({ name, sandbox }) => name === call.ifName && (sandbox ?? "") !== "",
  )?.mac;
  const mac = canonicalMac(reported ?? "");
  const expected = mac === undefined ? [] : elementsOf(call, mac);
  try {
    const removed = await removeElements(call.host, expected, { table: macSpoofTable, owner });
    if (removed > 0 && removed === expected.length) return;
    await sweepOwner(call.host, macSpoofTable, { sets, owner });
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `end the check of hardware addresses of interface "${call.ifName}" of network "${call.network}"`,
    );
  }
}

/** Rejects with a CniError (code 999) when frames from `mac`, and no others, would not pass: elements or rule are missing or somebody else's. */
export async function checkMacSpoofCheck(call: PluginCall, mac: string): Promise<void> {
  const nftables = nftablesOf(call.host);
  const { id } = nftOwner(call);
  for (const { set, key } of elementsOf(call, mac)) {
    const element = await nftables.element(macSpoofTable, set, key);
    if (element?.comment?.startsWith(`${id} `) === true) continue;
    throw drift(
      call,
      `the check of hardware address ${mac} lacks its element in nftables "${set}"`,
    );
  }
  if ((await nftables.rules(macSpoofTable, chain)).length === 0) {
    throw drift(call, `the rule of nftables chain "bridge ${macSpoofTable.name} ${chain}" is gone`);
  }
}

/** Removes the elements of the network's attachments that are not valid any more. Rejects with a CniError (code 5). */
export async function gcMacSpoofCheck(
  call: NetworkCall,
  valid: readonly ValidAttachment[],
): Promise<void> {
  const isMine = isGarbage(call.network, valid);
  try {
    await sweepElements(call.host, macSpoofTable, { sets, isMine });
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `collect checks of hardware addresses of network "${call.network}"`,
    );
  }
}

function elementsOf(call: PluginCall, mac: string): OwnedElement[] {
  const port = Buffer.alloc(nameSize);
  port.write(hostVethName(call.containerId, call.ifName));
  return [
    { set: "ports", key: port },
    { set: "own", key: concatenate(port, macToBytes(mac)) },
  ];
}

/** The table with its sets, chain and rule: the same whoever makes it. */
export function macSpoofFrame(): readonly NftChange[] {
  const loadPort: Expression = { kind: "meta", key: "iifname", into: 1 };
  const expressions: Expression[] = [
    loadPort,
    { kind: "lookup", set: "ports", register: 1 },
    loadPort,
    // The name fills register 1: the address follows it in memory.
    { kind: "payload", base: "link", ...etherSource, into: 2 },
    { kind: "lookup", set: "own", register: 1, invert: true },
    { kind: "verdict", verdict: { kind: "drop" } },
  ];
  return [
    { kind: "add-table" },
    { kind: "add-set", set: { name: "ports", key: ["ifname"] } },
    { kind: "add-set", set: { name: "own", key: ["ifname", "ether_addr"] } },
    {
      kind: "add-chain",
      chain: { name: chain, hook: { type: "filter", at: "prerouting", priority } },
    },
    { kind: "flush-chain", chain },
    { kind: "add-rule", chain, expressions },
  ];
}
