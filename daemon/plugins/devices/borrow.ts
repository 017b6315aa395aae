import { errorCode } from "../../../lib/base/errors.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { PluginCall } from "../plugin.ts";
import { chooseIndex, requireLink, requireSandbox } from "../shared/made-link.ts";
import { type Borrowed, rememberLink } from "./borrowed-state.ts";
import { linkOfDevice, parentOf } from "./find-device.ts";
import { type BusDevice, owningDevice } from "./pci.ts";

/** What identifies an interface of the node that is about to be borrowed; saved before it moves. */
export async function identify(
  host: Rtnetlink,
  link: Link,
): Promise<Omit<Borrowed, "key" | "returned">> {
  const device = parentOf(link);
  return {
    ...(device === undefined ? {} : { device }),
    ...(link.kind === undefined ? {} : { kind: link.kind }),
    ...(link.permanentMac === undefined ? {} : { permanentMac: link.permanentMac }),
    podIndex: chooseIndex(),
    before: await rememberLink(host, link),
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

/** Finds a borrowed interface in one place. */
export async function findIn(
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
