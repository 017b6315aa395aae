import { createHash } from "node:crypto";
import { errorCode } from "../../lib/base/errors.ts";
import { Netns } from "../../lib/base/netns.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { Link } from "../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { type Before, type Borrowed, rememberLink } from "./borrowed-state.ts";
import { linkOfDevice, parentOf } from "./find-device.ts";
import { chooseIndex, requireLink, requireSandbox } from "./made-link.ts";
import { type BusDevice, owningDevice } from "./pci.ts";
import type { PluginCall } from "./plugin.ts";

/** What identifies an interface that is about to be borrowed; saved before it moves. */
export function identify(link: Link): Omit<Borrowed, "key" | "returned"> {
  const device = parentOf(link);
  return {
    ...(device === undefined ? {} : { device }),
    ...(link.kind === undefined ? {} : { kind: link.kind }),
    ...(link.permanentMac === undefined ? {} : { permanentMac: link.permanentMac }),
    podIndex: chooseIndex(),
    before: rememberLink(link),
  };
}

/** Names a device among the claims of the node: by its bus, else its permanent hardware address, else its index. */
export function claimKey(link: Link): string {
  const device = parentOf(link);
  if (device !== undefined) return deviceKey(device);
  if (link.permanentMac !== undefined) return `mac/${link.permanentMac}`;
  return `index/${link.index}`;
}

/** As claimKey, for a device that has no interface on the node. */
export function deviceKey(device: BusDevice): string {
  const { bus, name } = owningDevice(device);
  return `${bus}/${name}`;
}

/**
 * Moves an interface of the node into the sandbox under the name that the attachment has there. One message moves and renames it, so that it never shows
 * under the wrong name. The alias keeps the original name, as the reference does. It is down afterwards.
 */
export async function moveIn(call: PluginCall, borrowed: Borrowed): Promise<Link> {
  const { before, podIndex } = borrowed;
  if (before === undefined || podIndex === undefined) throw new TypeError("nothing to move");
  const sandbox = requireSandbox(call);
  await call.host.changeLink(before.index, {
    netnsFd: sandbox.netns.fd,
    newIndex: podIndex,
    name: call.ifName,
    alias: before.name,
  });
  return requireLink(sandbox.rtnl, { index: podIndex, name: call.ifName });
}

/** Where a borrowed interface is now. */
export interface Whereabouts {
  readonly socket: Rtnetlink;
  readonly link: Link;
}

/** Finds a borrowed interface in the sandbox or back on the node, whatever its name is by now. */
export async function locate(
  call: PluginCall,
  borrowed: Borrowed,
): Promise<Whereabouts | undefined> {
  const sockets = call.sandbox === undefined ? [call.host] : [call.sandbox.rtnl, call.host];
  for (const socket of sockets) {
    const link = await findIn(socket, borrowed, socket === call.host);
    if (link !== undefined) return { socket, link };
  }
  return undefined;
}

async function findIn(
  socket: Rtnetlink,
  borrowed: Borrowed,
  onNode: boolean,
): Promise<Link | undefined> {
  if (borrowed.device !== undefined) {
    return linkOfDevice(await socket.links(), borrowed.device, borrowed.permanentMac);
  }
  if (borrowed.kind === undefined && borrowed.permanentMac !== undefined) {
    return (await socket.links()).find((link) => link.permanentMac === borrowed.permanentMac);
  }
  const index = onNode ? borrowed.before?.index : borrowed.podIndex;
  const link = index === undefined ? undefined : await socket.getLink({ index });
  return link?.kind === borrowed.kind ? link : undefined;
}

/** Kinds of links that a workload may have stacked on the interface; they would come along to the node. */
const stacked: readonly (string | undefined)[] = [
  "vlan",
  "macvlan",
  "macvtap",
  "ipvlan",
  "ipvtap",
  "macsec",
  "ipoib",
];

/** Deletes what the workload stacked on the interface in the sandbox: it goes back alone. */
async function deleteStacked(sandbox: Rtnetlink, lower: Link): Promise<void> {
  for (const link of await sandbox.links()) {
    const above = link.link === lower.index && link.linkNetnsId === undefined;
    if (above && stacked.includes(link.kind)) await sandbox.deleteLink({ index: link.index });
  }
}

/**
 * Brings a borrowed interface back to the node as it was: name, hardware address, MTU, queue length, group, flags, alternative names, and without the
 * addresses, the master and the stacked links that the workload gave it. Safe to repeat. Returns what to warn of.
 */
export async function bringBack(
  call: PluginCall,
  borrowed: Borrowed,
  found: Whereabouts,
): Promise<readonly string[]> {
  const { before } = borrowed;
  if (before === undefined) return [];
  const { name, warnings } = await chooseName(call.host, borrowed, before);
  let index = found.link.index;
  if (found.socket !== call.host) {
    await deleteStacked(found.socket, found.link);
    index = await moveOut(call, found, { name, index: before.index });
  }
  await restore(call.host, index, { ...before, name });
  return warnings;
}

/** A name that is free for the interface: its own, or one that depends on the device only when somebody took that meanwhile. */
async function chooseName(
  host: Rtnetlink,
  borrowed: Borrowed,
  before: Before,
): Promise<{ readonly name: string; readonly warnings: readonly string[] }> {
  const holder = await host.getLink({ name: before.name });
  const isItself =
    holder !== undefined && (await findIn(host, borrowed, true))?.index === holder.index;
  if (holder === undefined || isItself) return { name: before.name, warnings: [] };
  const digest = createHash("sha256").update(borrowed.key).digest("hex");
  const name = `pn${digest.slice(0, 10)}`;
  const warning = `device "${borrowed.key}" comes back as "${name}": another interface took its name "${before.name}"`;
  return { name, warnings: [warning] };
}

async function moveOut(
  call: PluginCall,
  found: Whereabouts,
  target: { readonly name: string; readonly index: number },
): Promise<number> {
  const { socket, link } = found;
  const netnsFd = Netns.current().fd;
  await socket.changeLink(link.index, { up: false });
  if (link.master !== undefined) await socket.changeLink(link.index, { master: 0 });
  await socket.changeLink(link.index, { netnsFd, name: target.name, newIndex: target.index });
  const moved = await call.host.getLink({ name: target.name });
  if (moved !== undefined) return moved.index;
  throw new CniError(
    cniCode.tryAgainLater,
    `bring "${target.name}" back to the node: it did not arrive`,
  );
}

async function restore(host: Rtnetlink, index: number, before: Before): Promise<void> {
  const link = await requireLink(host, { index, name: before.name });
  // A hardware address can be changed only while the interface is down, and many drivers ask the same for its name.
  await host.changeLink(index, { up: false });
  if (link.master !== undefined) await host.changeLink(index, { master: 0 });
  if (link.name !== before.name) await host.changeLink(index, { name: before.name });
  if (before.mac !== undefined && link.mac !== before.mac) {
    await setMac(host, index, before.mac);
  }
  await host.changeLink(index, {
    mtu: before.mtu,
    group: before.group,
    alias: before.alias,
    promisc: before.promisc,
    allmulti: before.allmulti,
    ...(before.txQueueLength === undefined ? {} : { txQueueLength: before.txQueueLength }),
  });
  await restoreAltNames(host, link, before);
  for (const { address } of await host.addresses(index)) {
    await host.deleteAddress({ index, address });
  }
  if (before.up) await host.changeLink(index, { up: true });
}

/**
 * Sets a hardware address while the interface is down, as drivers demand. A VF that may only have the address which its physical function gave it learns of
 * that one when it is reset, which coming up and going down does.
 */
export async function setMac(rtnl: Rtnetlink, index: number, mac: string): Promise<void> {
  try {
    await rtnl.changeLink(index, { mac });
    return;
  } catch (error) {
    if (errorCode(error) !== "EADDRNOTAVAIL") throw error;
  }
  await rtnl.changeLink(index, { up: true });
  await rtnl.changeLink(index, { up: false });
  await rtnl.changeLink(index, { mac });
}

async function restoreAltNames(host: Rtnetlink, link: Link, before: Before): Promise<void> {
  for (const name of link.altNames) {
    if (!before.altNames.includes(name)) await host.deleteAltName(link.index, name);
  }
  for (const name of before.altNames) {
    if (!link.altNames.includes(name)) await host.addAltName(link.index, name);
  }
}
