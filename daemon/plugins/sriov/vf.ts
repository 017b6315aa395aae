import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { Link, VfInfo } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { VfBefore } from "../devices/borrowed-state.ts";
import { linkOfDevice } from "../devices/find-device.ts";
import { physicalFunction } from "../devices/pci.ts";
import type { PluginCall } from "../plugin.ts";
import { asCniError } from "../shared/errors.ts";
import type { VfSettings } from "./config.ts";

const noMac = "00:00:00:00:00:00";

/** A virtual function, and the interface of its physical function. */
export interface Vf {
  readonly pf: Link;
  readonly pfAddress: string;
  readonly vf: number;
}

/** Finds a virtual function by its PCI address. Throws code 7 when it is none, code 11 when its physical function has no interface (just now). */
export async function requireVf(call: PluginCall, address: string): Promise<Vf> {
  const found = physicalFunction(address);
  const where = `network "${call.network}": deviceID "${address}"`;
  if (found === undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `${where}: no virtual function has this PCI address on this node`,
    );
  }
  const pf = await pfLink(call.host, found.address);
  if (pf !== undefined) return { pf, pfAddress: found.address, vf: found.vf };
  throw new CniError(
    cniCode.tryAgainLater,
    `${where}: its physical function "${found.address}" has no interface on the node`,
  );
}

async function pfLink(host: Rtnetlink, address: string): Promise<Link | undefined> {
  return linkOfDevice(await host.links(), { bus: "pci", name: address });
}

/** What the physical function says of the virtual one. Throws code 11 when it says nothing. */
export async function readVf(host: Rtnetlink, { pf, vf }: Vf): Promise<VfInfo> {
  const link = await host.getLink({ index: pf.index }, { vfs: true });
  const info = link?.vfs?.find((one) => one.vf === vf);
  if (info !== undefined) return info;
  throw new CniError(
    cniCode.tryAgainLater,
    `read VF ${vf} of "${pf.name}": the interface says nothing of it`,
  );
}

/** What to remember of a virtual function. */
export function rememberVf({ pfAddress }: Vf, info: VfInfo): VfBefore {
  return { ...info, pfAddress };
}

/** Each setting in a message of its own: one that the driver refuses is named, and takes no other with it. */
export async function applyVf(call: PluginCall, vf: Vf, settings: VfSettings): Promise<void> {
  for (const change of groups(settings)) {
    try {
      await call.host.setVf(vf.pf.index, vf.vf, change);
    } catch (error) {
      const what = Object.entries(change)
        .map(([key, value]) => `${key} ${value}`)
        .join(", ");
      const action = `set ${what} of VF ${vf.vf} of "${vf.pf.name}" (network "${call.network}")`;
      throw asCniError(error, cniCode.invalidNetworkConfig, action);
    }
  }
}

/** Settings that the kernel takes only together. VLAN first, as sriov-cni does it. */
const together: readonly (readonly (keyof VfSettings)[])[] = [
  ["vlan", "qos", "vlanProtocol"],
  ["mac"],
  ["minTxRate", "maxTxRate"],
  ["spoofCheck"],
  ["trust"],
  ["linkState"],
  ["nodeGuid"],
  ["portGuid"],
];

function groups(settings: VfSettings): readonly VfSettings[] {
  return together
    .map((keys) => Object.entries(settings).filter(([key]) => keys.some((one) => one === key)))
    .filter((entries) => entries.length > 0)
    .map((entries) => Object.fromEntries(entries) as VfSettings);
}

/** The settings in which the virtual function is not as it was, with the values that it had. */
export function vfDifference(before: VfBefore, now: VfInfo): VfSettings {
  const tag =
    before.vlan !== now.vlan ||
    before.qos !== now.qos ||
    (before.vlan !== 0 && before.vlanProtocol !== now.vlanProtocol);
  const least = before.minTxRate !== now.minTxRate;
  const most = before.maxTxRate !== now.maxTxRate;
  return {
    ...(tag ? { vlan: before.vlan, qos: before.qos, vlanProtocol: before.vlanProtocol } : {}),
    ...(before.mac === now.mac ? {} : { mac: before.mac }),
    // A driver without a least rate refuses to be told one, even 0.
    ...(least ? { minTxRate: before.minTxRate } : {}),
    ...(least || most ? { maxTxRate: before.maxTxRate } : {}),
    ...(before.spoofCheck === now.spoofCheck ? {} : { spoofCheck: before.spoofCheck }),
    ...(before.trust === now.trust ? {} : { trust: before.trust }),
    ...(before.linkState === now.linkState ? {} : { linkState: before.linkState }),
    ...(before.nodeGuid === now.nodeGuid ? {} : guidOf("nodeGuid", before.nodeGuid)),
    ...(before.portGuid === now.portGuid ? {} : guidOf("portGuid", before.portGuid)),
  };
}

/** A function that was given none has zeros, which drivers do not take back: all ones stand for none, as in ib-sriov-cni. */
function guidOf(key: "nodeGuid" | "portGuid", guid: string | undefined): VfSettings {
  if (guid === undefined) return {};
  return { [key]: /^[0:]+$/.test(guid) ? "ff:ff:ff:ff:ff:ff:ff:ff" : guid };
}

/** IFLA_ADDRESS of an InfiniBand interface has twenty bytes. Throws code 103: a GUID that was asked for is given or refused, never ignored. */
export function requireInfiniband(call: PluginCall, { pf }: Vf, guid: string): void {
  if (pf.mac?.split(":").length === 20) return;
  throw new CniError(
    cniCode.capabilityUnsupported,
    `network "${call.network}": infinibandGUID "${guid}": physical function "${pf.name}" is an Ethernet device: ask for it on an InfiniBand network only`,
  );
}

/**
 * Puts a virtual function back to what it was, and says what could not be. When its physical function, or the virtual one on it, is gone, so
 * is everything that was set.
 */
export async function resetVf(call: PluginCall, before: VfBefore): Promise<void> {
  const pf = await pfLink(call.host, before.pfAddress);
  if (pf === undefined) return;
  const link = await call.host.getLink({ index: pf.index }, { vfs: true });
  const now = link?.vfs?.find((one) => one.vf === before.vf);
  if (now === undefined) return;
  await applyVf(
    call,
    { pf, pfAddress: before.pfAddress, vf: before.vf },
    vfDifference(before, now),
  );
}

/** The hardware address that the physical function gave the virtual one; undefined when it gave none. */
export function adminMac(info: Pick<VfInfo, "mac">): string | undefined {
  return info.mac === noMac ? undefined : info.mac;
}
