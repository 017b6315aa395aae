import { formatCidr, parseCidr, parseIp, withPrefix } from "../../../lib/base/ip.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { CniResult } from "../../../lib/cni/types.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import { checkMacSpoofCheck } from "../nftables/mac-spoof.ts";
import { checkMasquerade } from "../nftables/masquerade.ts";
import type { PluginCall } from "../plugin.ts";
import { checkForwarding, checkInterface, drift } from "../shared/interface.ts";
import { requireSandbox } from "../shared/made-link.ts";
import { hostVethName } from "../shared/names.ts";
import { type BridgeConfig, readBridgeConfig } from "./config.ts";

/** IFF_PROMISC of linux/if.h. */
const promiscuous = 0x100;

/** CHECK of a bridge attachment: both ends, the port's settings, the bridge, gateways, addresses, routes and masquerading. */
export async function checkBridge(call: PluginCall): Promise<void> {
  const config = readBridgeConfig(call);
  const sandbox = requireSandbox(call);
  const result = requireResult(call);
  await call.ipam?.check();
  const pod = await sandbox.rtnl.getLink({ name: call.ifName });
  if (pod?.kind !== "veth") throw drift(call, `interface "${call.ifName}" is gone from the pod`);
  requireSame(call, pod, result);
  if (!config.disableContainerInterface && !pod.up) {
    throw drift(call, `interface "${call.ifName}" is down`);
  }
  const device = await requireBridge(call, config, result);
  const mtu = result.interfaces[interfaceIndex(call, result)]?.mtu ?? config.mtu;
  if (mtu !== undefined && pod.mtu !== mtu) {
    throw drift(call, `interface "${call.ifName}" has MTU ${pod.mtu} instead of ${mtu}`);
  }
  await checkPort(call, config, { pod, device });
  await checkInterface(call, sandbox, { link: pod, result });
  if (config.macSpoofCheck && pod.mac !== undefined) await checkMacSpoofCheck(call, pod.mac);
  if (config.isGateway) await checkGateways(call, config, { device, result });
  if (config.ipMasq) {
    await checkMasquerade(
      call,
      result.ips
        .filter((ip) => ip.interface === interfaceIndex(call, result))
        .map((ip) => ip.address),
    );
  }
}

function requireResult(call: PluginCall): CniResult {
  if (call.prevResult !== undefined) return call.prevResult;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `check network "${call.network}": prevResult is missing`,
  );
}

function interfaceIndex(call: PluginCall, result: CniResult): number {
  return result.interfaces.findIndex(
    ({ name, sandbox }) => name === call.ifName && sandbox === call.netnsPath,
  );
}

/** The pod's end has the hardware address that ADD reported. */
function requireSame(call: PluginCall, pod: Link, result: CniResult): void {
  const known = result.interfaces[interfaceIndex(call, result)];
  if (known === undefined) {
    throw drift(call, `the result has no interface "${call.ifName}" in "${call.netnsPath ?? ""}"`);
  }
  if (known.mac !== undefined && known.mac !== "" && known.mac.toLowerCase() !== pod.mac) {
    throw drift(
      call,
      `interface "${call.ifName}" has hardware address "${pod.mac ?? ""}" instead of "${known.mac}"`,
    );
  }
}

async function requireBridge(
  call: PluginCall,
  config: BridgeConfig,
  result: CniResult,
): Promise<Link> {
  const device = await call.host.getLink({ name: config.bridge });
  if (device?.kind !== "bridge") throw drift(call, `bridge "${config.bridge}" is gone`);
  if (!device.up) throw drift(call, `bridge "${config.bridge}" is down`);
  if (config.promiscMode && (device.flags & promiscuous) === 0) {
    throw drift(call, `bridge "${config.bridge}" is not promiscuous any more`);
  }
  const known = result.interfaces.find(
    ({ name, sandbox }) => name === config.bridge && (sandbox ?? "") === "",
  );
  // Without a gateway address the bridge's own hardware address changes as pods come and go.
  if (
    config.isGateway &&
    known?.mac !== undefined &&
    known.mac !== device.mac &&
    config.vlan === undefined
  ) {
    throw drift(
      call,
      `bridge "${config.bridge}" has hardware address "${device.mac ?? ""}" instead of "${known.mac}"`,
    );
  }
  return device;
}

async function checkPort(
  call: PluginCall,
  config: BridgeConfig,
  { pod, device }: { readonly pod: Link; readonly device: Link },
): Promise<void> {
  const name = hostVethName(call.containerId, call.ifName);
  const port = await call.host.getLink({ name });
  if (port?.kind !== "veth" || port.link !== pod.index || pod.link !== port.index) {
    throw drift(call, `"${name}" is not the other end of interface "${call.ifName}"`);
  }
  const faults = [...portFaults(config, port, device)];
  if (faults.length > 0) throw drift(call, `bridge port "${name}" ${faults.join(", ")}`);
  await checkVlans(call, config, { port, device });
}

function* portFaults(config: BridgeConfig, port: Link, device: Link): Generator<string> {
  const { mtu, hairpinMode, portIsolation } = config;
  const { hairpin = false, isolated = false } = port.bridgePort ?? {};
  if (!port.up) yield "is down";
  if (port.master !== device.index) yield `is not on bridge "${config.bridge}"`;
  if (mtu !== undefined && port.mtu !== mtu) yield `has MTU ${port.mtu} instead of ${mtu}`;
  if (hairpin !== hairpinMode) yield `has hairpin mode ${hairpin ? "on" : "off"}`;
  if (isolated !== portIsolation) yield `has port isolation ${isolated ? "on" : "off"}`;
}

async function checkVlans(
  call: PluginCall,
  config: BridgeConfig,
  { port, device }: { readonly port: Link; readonly device: Link },
): Promise<void> {
  const { vlan, trunk = [] } = config;
  if (vlan === undefined && trunk.length === 0) return;
  if (device.data?.kind === "bridge" && device.data.vlanFiltering === false) {
    throw drift(call, `bridge "${config.bridge}" does not filter VLANs any more`);
  }
  const present = await call.host.bridgeVlans(port.index);
  const has = (id: number): boolean =>
    present.some((entry) => entry.id <= id && id <= (entry.endId ?? entry.id));
  const missing = [...(vlan === undefined ? [] : [vlan]), ...trunk].find((id) => !has(id));
  if (missing !== undefined) {
    throw drift(call, `bridge port "${port.name}" is not in VLAN ${missing}`);
  }
  const more = config.preserveDefaultVlan
    ? undefined
    : present.find(({ id, endId = id }) => !isAllowed(config, id, endId));
  if (more !== undefined) {
    throw drift(call, `bridge port "${port.name}" is in VLAN ${more.id}, which is not its own`);
  }
  if (vlan !== undefined && !present.some((entry) => entry.id === vlan && entry.pvid === true)) {
    throw drift(
      call,
      `bridge port "${port.name}" has another VLAN than ${vlan} for untagged frames`,
    );
  }
}

/** A trunk without a VLAN of its own has the kernel's VLAN 1 for untagged frames. */
function isAllowed({ vlan = 1, trunk = [] }: BridgeConfig, first: number, last: number): boolean {
  const own = new Set([vlan, ...trunk]);
  for (let id = first; id <= last; id += 1) if (!own.has(id)) return false;
  return true;
}

async function checkGateways(
  call: PluginCall,
  config: BridgeConfig,
  { device, result }: { readonly device: Link; readonly result: CniResult },
): Promise<void> {
  const name = config.vlan === undefined ? device.name : `${device.name}.${config.vlan}`;
  const link = await call.host.getLink({ name });
  if (link === undefined) throw drift(call, `gateway interface "${name}" is gone`);
  const present = new Set((await call.host.addresses(link.index)).map(({ address }) => address));
  const index = interfaceIndex(call, result);
  for (const ip of result.ips) {
    if (ip.gateway === undefined || ip.interface !== index) continue;
    const gateway = withPrefix(parseIp(ip.gateway), parseCidr(ip.address).prefixLength);
    if (!present.has(formatCidr(gateway))) {
      throw drift(call, `"${name}" lacks the gateway address "${formatCidr(gateway)}"`);
    }
    checkForwarding(call, gateway.family);
  }
}
