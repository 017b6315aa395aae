import { createHash } from "node:crypto";
import { errorText } from "../../../lib/base/errors.ts";
import { Netns } from "../../../lib/base/netns.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { Link, LinkChange } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { PluginCall } from "../plugin.ts";
import { withoutAbsent } from "../shared/config.ts";
import { requireLink } from "../shared/made-link.ts";
import { findIn, setMac, type Whereabouts } from "./borrow.ts";
import { type Before, type Borrowed, flagsOf, isWished } from "./borrowed-state.ts";
import { oweName } from "./owed-names.ts";

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

/** XDP_FLAGS_* of linux/if_link.h by XDP_ATTACHED_*: where a program is detached from. */
const xdpFlags: Readonly<Record<number, readonly number[]>> = {
  1: [4],
  2: [2],
  3: [8],
  4: [2, 4, 8],
};

/**
 * Brings a borrowed interface back to the node as it was: name, hardware address, MTU, queue length, group, flags, alias and alternative names, addresses and
 * master, and without what the workload gave it, XDP programs and stacked links included. Safe to repeat. Returns what to warn of.
 */
export async function bringBack(
  call: PluginCall,
  borrowed: Borrowed,
  found: Whereabouts,
): Promise<readonly string[]> {
  const { before } = borrowed;
  if (before === undefined) return [];
  const name = await chooseName(call.host, borrowed, before);
  let index = found.link.index;
  if (found.socket !== call.host) {
    await deleteStacked(found.socket, found.link);
    index = await moveOut(call, found, { ...before, name });
  }
  const warnings = await restore(call.host, index, { ...before, name });
  if (name === before.name) return warnings;
  oweName({ key: borrowed.key, name: before.name, current: name });
  const warning = `device "${borrowed.key}" comes back as "${name}": another interface took its name "${before.name}", which it gets when that is free again`;
  return [warning, ...warnings];
}

/** A name that is free for the interface: its own, or one that depends on the device only when somebody took that meanwhile. */
async function chooseName(host: Rtnetlink, borrowed: Borrowed, before: Before): Promise<string> {
  const holder = await host.getLink({ name: before.name });
  const isFree =
    holder === undefined || (await findIn(host, borrowed, true))?.index === holder.index;
  if (isFree) return before.name;
  return `pn${createHash("sha256").update(borrowed.key).digest("hex").slice(0, 10)}`;
}

/** Deletes what the workload stacked on the interface in the sandbox: it goes back alone. */
async function deleteStacked(sandbox: Rtnetlink, lower: Link): Promise<void> {
  for (const link of await sandbox.links()) {
    const above = link.link === lower.index && link.linkNetnsId === undefined;
    if (above && stacked.includes(link.kind)) await sandbox.deleteLink({ index: link.index });
  }
}

/**
 * Moves the interface to the node, and gives it what it had in the same message: the kernel moves it first, which takes it down and takes its addresses away. What a
 * driver refuses is left to `restore`, which does it one by one.
 */
async function moveOut(call: PluginCall, found: Whereabouts, before: Before): Promise<number> {
  const { socket, link } = found;
  if (link.master !== undefined) await socket.changeLink(link.index, { master: 0 });
  const move = { netnsFd: Netns.current().fd, name: before.name };
  const isAlone = before.addresses.length === 0 && before.master === undefined;
  const { mac } = before;
  const attempts: readonly LinkChange[] = [
    {
      ...move,
      newIndex: before.index,
      ...(mac === undefined || mac === link.mac ? {} : { mac }),
      ...settingsOf(before),
      ...(before.up && isAlone && before.xdpProgram === undefined && link.xdp === undefined
        ? { up: true }
        : {}),
    },
    { ...move, newIndex: before.index },
    // Another link may have the index by now.
    move,
  ];
  let failure: unknown;
  for (const attempt of attempts) {
    try {
      await socket.changeLink(link.index, attempt);
    } catch (error) {
      failure = error;
    }
    const moved = await call.host.getLink({ name: before.name });
    if (moved !== undefined) return moved.index;
  }
  const reason = failure === undefined ? "it did not arrive" : errorText(failure);
  throw new CniError(cniCode.tryAgainLater, `bring "${before.name}" back to the node: ${reason}`, {
    cause: failure,
  });
}

/** What can be set at any time, whatever the interface is like. */
function settingsOf(before: Before): LinkChange {
  const { mtu, group, alias, promisc, allmulti, arp, multicast, dynamic, txQueueLength } = before;
  return {
    mtu,
    group,
    alias,
    promisc,
    allmulti,
    ...(arp === undefined ? {} : { arp }),
    ...(multicast === undefined ? {} : { multicast }),
    ...(dynamic === undefined ? {} : { dynamic }),
    ...(txQueueLength === undefined ? {} : { txQueueLength }),
  };
}

async function restore(host: Rtnetlink, index: number, before: Before): Promise<string[]> {
  const link = await requireLink(host, { index, name: before.name });
  const warnings = await restoreXdp(host, link, before);
  const master = before.master && (await host.getLink({ name: before.master.name }));
  if (before.master !== undefined && master === undefined) {
    warnings.push(`"${before.name}" had the master "${before.master.name}", which is gone`);
  }
  await restoreIdentity(host, link, { before, master: master?.index ?? 0 });
  if (!hasSettings(link, before)) await host.changeLink(index, settingsOf(before));
  await restoreAltNames(host, link, before);
  await restoreAddresses(host, index, before);
  const now = await requireLink(host, { index, name: before.name });
  if (now.up !== before.up) await host.changeLink(index, { up: before.up });
  return warnings;
}

/**
 * Name, hardware address and master. An address can be changed only while the interface is down; many drivers ask the same for the name, and bonds for
 * their ports.
 */
async function restoreIdentity(
  host: Rtnetlink,
  link: Link,
  to: { readonly before: Before; readonly master: number },
): Promise<void> {
  const { index } = link;
  const { name, mac } = to.before;
  const macDiffers = mac !== undefined && mac !== link.mac;
  const masterDiffers = (link.master ?? 0) !== to.master;
  if (!macDiffers && !masterDiffers && link.name === name) return;
  await host.changeLink(index, { up: false });
  if (masterDiffers && link.master !== undefined) await host.changeLink(index, { master: 0 });
  if (link.name !== name) await host.changeLink(index, { name });
  if (macDiffers) await setMac(host, index, mac);
  if (masterDiffers && to.master !== 0) await host.changeLink(index, { master: to.master });
}

function hasSettings(link: Link, before: Before): boolean {
  const now = { ...link, ...flagsOf(link), alias: link.alias ?? "" };
  return Object.entries(settingsOf(before)).every(
    ([key, value]) => now[key as keyof typeof now] === value,
  );
}

async function restoreXdp(host: Rtnetlink, link: Link, before: Before): Promise<string[]> {
  if (link.xdp === undefined || link.xdp.program === before.xdpProgram) return [];
  for (const flags of xdpFlags[link.xdp.attached] ?? []) {
    try {
      await host.changeLink(link.index, { xdp: { fd: -1, flags } });
    } catch (error) {
      return [
        `"${before.name}" keeps the XDP program of its pod, which may drop packets: ${errorText(error)}`,
      ];
    }
  }
  return [];
}

async function restoreAltNames(host: Rtnetlink, link: Link, before: Before): Promise<void> {
  for (const name of link.altNames) {
    if (!before.altNames.includes(name)) await host.deleteAltName(link.index, name);
  }
  for (const name of before.altNames) {
    if (!link.altNames.includes(name)) await host.addAltName(link.index, name);
  }
}

async function restoreAddresses(host: Rtnetlink, index: number, before: Before): Promise<void> {
  const present = await host.addresses(index);
  const had = new Set(before.addresses.map(({ address }) => address));
  for (const found of present) {
    if (isWished(found) && !had.has(found.address)) {
      await host.deleteAddress({ index, address: found.address });
    }
  }
  const has = new Set(present.map(({ address }) => address));
  for (const { label, ...address } of before.addresses) {
    if (has.has(address.address)) continue;
    // The kernel takes a label only that begins with the interface's name.
    const named = label?.startsWith(before.name) === true ? label : undefined;
    await host.addAddress({ ...withoutAbsent({ ...address, label: named }), index });
  }
}
