import { errorCode } from "../../../lib/base/errors.ts";
import { type Cidr, contains, formatCidr, formatIp, parseCidr } from "../../../lib/base/ip.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { NetworkCall } from "../plugin.ts";
import { asCniError } from "../shared/errors.ts";
import { broadcastOf } from "../shared/interface.ts";
import { isInterfaceName, vlanPortName } from "../shared/names.ts";
import { writeSysctls } from "../shared/sysctl.ts";
import type { BridgeConfig } from "./config.ts";

/** IFF_PROMISC of linux/if.h. */
const promiscuous = 0x100;

/**
 * The bridge of the configuration, made when it is missing, up. One that exists is taken as it is, its MTU and settings kept.
 * Throws a CniError (code 7) when the name belongs to something else.
 */
export async function ensureBridge(call: NetworkCall, config: BridgeConfig): Promise<Link> {
  const { host } = call;
  const name = config.bridge;
  const link = (await host.getLink({ name })) ?? (await createBridge(call, config));
  if (link.kind !== "bridge") {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `use bridge "${name}" of network "${call.network}": the interface exists and is not a bridge`,
    );
  }
  // The node's routes are not for others on the bridge to announce.
  writeSysctls(undefined, [
    { path: `net/ipv6/conf/${name}/accept_ra`, value: "0", optional: true },
  ]);
  const promisc = config.promiscMode && (link.flags & promiscuous) === 0;
  if (!link.up || promisc) {
    await host.changeLink(link.index, {
      ...(!link.up && { up: true }),
      ...(promisc && { promisc }),
    });
  }
  return link;
}

async function createBridge(call: NetworkCall, config: BridgeConfig): Promise<Link> {
  const { host } = call;
  const name = config.bridge;
  const vlanFiltering = config.vlan !== undefined || config.trunk !== undefined;
  try {
    await host.createLink({
      name,
      data: { kind: "bridge", ...(vlanFiltering && { vlanFiltering }) },
      ...(config.mtu !== undefined && { mtu: config.mtu }),
    });
  } catch (error) {
    // Another attachment of the network made it in between.
    if (errorCode(error) !== "EEXIST") {
      const action = `create bridge "${name}" of network "${call.network}"`;
      throw asCniError(error, cniCode.invalidNetworkConfig, action);
    }
  }
  const link = await host.getLink({ name });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.tryAgainLater,
    `create bridge "${name}" of network "${call.network}": somebody deleted it at once`,
  );
}

const noMac = "00:00:00:00:00:00";

/** A gateway address to give to the bridge, or to the gateway interface of one of its VLANs. */
export interface GatewayPlace {
  /** As it was before any port of this call came: its hardware address is then kept for good. */
  readonly link: Link;
  readonly address: Cidr;
  readonly force: boolean;
}

/**
 * Gives the device the address, unless it has it. Another IPv4 address, or an IPv6 address of an overlapping subnet, is replaced with
 * `force`, else a fault (code 7). Pins the device's hardware address, which would change with the ports otherwise.
 */
export async function ensureGatewayAddress(call: NetworkCall, place: GatewayPlace): Promise<void> {
  const { host } = call;
  const { link, address, force } = place;
  const text = formatCidr(address);
  const present = (await host.addresses(link.index)).map((entry) => entry.address);
  if (present.includes(text)) return;
  for (const other of present.filter((entry) => excludes(parseCidr(entry), address))) {
    if (!force) {
      throw new CniError(
        cniCode.invalidNetworkConfig,
        `add gateway "${text}" to "${link.name}" of network "${call.network}": it has the address "${other}" already: use another bridge or set forceAddress`,
      );
    }
    await host.deleteAddress({ index: link.index, address: other });
  }
  try {
    await host.addAddress({ index: link.index, address: text, ...broadcastOf(address) });
  } catch (error) {
    if (errorCode(error) !== "EEXIST") {
      const action = `add gateway "${formatIp(address)}" to "${link.name}" of network "${call.network}"`;
      throw asCniError(error, cniCode.internal, action);
    }
  }
  // One whose last port has gone has none, until the next port comes.
  const { mac } = link.mac === noMac ? await requireHostLink(call, link.name) : link;
  if (mac !== undefined && mac !== noMac) await host.changeLink(link.index, { mac });
}

function excludes(present: Cidr, wanted: Cidr): boolean {
  if (present.family !== wanted.family) return false;
  return wanted.family === 4 || contains(present, wanted) || contains(wanted, present);
}

/**
 * The interface that gives a VLAN of the bridge its gateway: one end of a veth pair whose other end is an untagged port of that VLAN.
 * Made when it is missing, and kept, like the bridge.
 */
export async function ensureVlanGateway(
  call: NetworkCall,
  place: { readonly bridge: Link; readonly vlan: number; readonly preserveDefaultVlan: boolean },
): Promise<Link> {
  const { host } = call;
  const name = `${place.bridge.name}.${place.vlan}`;
  const present = await host.getLink({ name });
  if (present !== undefined) return present;
  if (!isInterfaceName(name)) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `create VLAN gateway "${name}" of network "${call.network}": the name is longer than 15 characters, use a shorter bridge name`,
    );
  }
  const port = vlanPortName(name);
  try {
    await host.createLink({
      name: port,
      data: { kind: "veth", peer: { name, mtu: place.bridge.mtu } },
      mtu: place.bridge.mtu,
      master: place.bridge.index,
      up: true,
    });
  } catch (error) {
    const action = `create VLAN gateway "${name}" of network "${call.network}"`;
    throw asCniError(error, cniCode.internal, action);
  }
  writeSysctls(undefined, [
    { path: `net/ipv6/conf/${port}/accept_ra`, value: "0", optional: true },
  ]);
  const link = await requireHostLink(call, name);
  await setPortVlans(call, await requireHostLink(call, port), {
    vlan: place.vlan,
    trunk: undefined,
    preserveDefaultVlan: place.preserveDefaultVlan,
  });
  await host.changeLink(link.index, { up: true });
  return link;
}

/** The link of the node with this name. Throws code 11 when it is gone again. */
export async function requireHostLink(call: NetworkCall, name: string): Promise<Link> {
  const link = await call.host.getLink({ name });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.tryAgainLater,
    `find interface "${name}" of network "${call.network}": somebody deleted it while it was being configured`,
  );
}

/** What a port carries. */
export interface PortVlans {
  readonly vlan: number | undefined;
  readonly trunk: readonly number[] | undefined;
  readonly preserveDefaultVlan: boolean;
}

/** The VLAN that a trunk port's untagged frames belong to when the configuration names none. */
const nativeVlan = 1;

/**
 * The VLANs of a port that the configuration asks for: `vlan` untagged, the trunk's tagged. The bridge's default VLAN is taken from the port
 * unless it is to be preserved. Without either the port stays as the bridge made it.
 */
export async function setPortVlans(
  call: NetworkCall,
  port: Link,
  { vlan, trunk = [], preserveDefaultVlan }: PortVlans,
): Promise<void> {
  const { host } = call;
  if (vlan === undefined && trunk.length === 0) return;
  if (!preserveDefaultVlan) {
    for (const { id, endId } of await host.bridgeVlans(port.index)) {
      await host.deleteBridgeVlan(port.index, { id, ...(endId !== undefined && { endId }) });
    }
  }
  await host.addBridgeVlan(port.index, { id: vlan ?? nativeVlan, pvid: true, untagged: true });
  for (const id of trunk) await host.addBridgeVlan(port.index, { id });
}
