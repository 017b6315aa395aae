import { setTimeout } from "node:timers/promises";
import { errorCode } from "../../lib/base/errors.ts";
import {
  canonicalCidr,
  formatIp,
  type IpFamily,
  networkOf,
  offsetIp,
  parseCidr,
  parseIp,
  withPrefix,
} from "../../lib/base/ip.ts";
import { together } from "../../lib/base/together.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniIp, CniResult, CniRoute, ValidAttachment } from "../../lib/cni/types.ts";
import { emptyResult } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import { checkBridge } from "./bridge/check.ts";
import { type BridgeConfig, readBridgeConfig } from "./bridge/config.ts";
import {
  ensureBridge,
  ensureGatewayAddress,
  ensureVlanGateway,
  requireHostLink,
  setPortVlans,
} from "./bridge/device.ts";
import { addMacSpoofCheck, deleteMacSpoofCheck, gcMacSpoofCheck } from "./nftables/mac-spoof.ts";
import { addMasquerade, deleteMasquerade, gcMasquerade } from "./nftables/masquerade.ts";
import type { NetworkCall, Plugin, PluginCall, Sandbox } from "./plugin.ts";
import { asCniError } from "./shared/errors.ts";
import { configureInterface, forwarding } from "./shared/interface.ts";
import { requireLink, requireSandbox } from "./shared/made-link.ts";
import { hostVethName } from "./shared/names.ts";
import { writeSysctls } from "./shared/sysctl.ts";

/** IF_OPER_UP of linux/if.h. */
const operUp = 6;
const portLimitMs = 2_500;
const longestPauseMs = 50;
/** Where the pod's interface stands in the result. */
const containerIndex = 2;

/**
 * The reference's bridge: a veth pair between the pod and a bridge of the node, which is made when it is missing. The node's end has a
 * name that follows from the attachment (`hostVethName`), so that DEL needs nothing else.
 */
export const bridge: Plugin = { add, del, check: checkBridge, gc };

async function add(call: PluginCall): Promise<CniResult> {
  const config = readBridgeConfig(call);
  const sandbox = requireSandbox(call);
  const addressing = await addressesFor(call, config);
  const device = await ensureBridge(call, config);
  const port = await attachVeth(call, config, { device, sandbox });
  if (config.macSpoofCheck && config.mac !== undefined) await addMacSpoofCheck(call, config.mac);
  const pod = await setUpPod(call, config, { sandbox, index: port.link ?? 0, addressing });
  const result = { ...addressing, interfaces: podInterfaces(call, sandbox, pod) };
  const gateway = await setUpGateways(call, config, { device, ips: result.ips });
  if (config.ipMasq) {
    await addMasquerade(
      call,
      result.ips.map(({ address }) => address),
    );
  }
  const [settled, now] = await together([
    config.disableContainerInterface ? Promise.resolve(port) : awaitPort(call, port),
    // The hardware address is read at the end: it may have changed with the bridge's first port.
    requireHostLink(call, config.bridge),
  ]);
  return finish(config, result, [now, settled, gateway]);
}

/** The pod's end, configured. */
async function setUpPod(
  call: PluginCall,
  config: BridgeConfig,
  at: { readonly sandbox: Sandbox; readonly index: number; readonly addressing: CniResult },
): Promise<Link> {
  const { sandbox, addressing } = at;
  const link = { index: at.index, name: call.ifName };
  const found = requireLink(sandbox.rtnl, link);
  if (config.disableContainerInterface) return await found;
  const hasIps = addressing.ips.length > 0;
  const setup = {
    result: addressing,
    index: containerIndex,
    ...(hasIps && { dad: config.enableDad, notify: { arp: true } }),
  };
  const [pod] = await together([found, configureInterface(call, sandbox, { link, setup })]);
  return pod;
}

/** The addresses, with their gateways, and routes of the attachment; none without IPAM. */
async function addressesFor(call: PluginCall, config: BridgeConfig): Promise<CniResult> {
  if (call.ipam === undefined) return emptyResult;
  const { ips, routes, dns } = await call.ipam.add();
  if (ips.length === 0) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `configure network "${call.network}": its IPAM gave no address`,
    );
  }
  const owned = ips.map(
    (ip): CniIp => ({ ...ip, interface: containerIndex, ...gatewayOf(ip, config) }),
  );
  const defaults = config.isDefaultGateway ? defaultRoutes(owned, routes) : [];
  return { interfaces: [], ips: owned, routes: [...routes, ...defaults], dns };
}

function gatewayOf(ip: CniIp, config: BridgeConfig): { readonly gateway?: string } {
  if (ip.gateway !== undefined) return { gateway: ip.gateway };
  if (!config.isGateway) return {};
  return { gateway: formatIp(offsetIp(networkOf(parseCidr(ip.address)), 1)) };
}

/** One for each family that has an address and no default route with a gateway yet. */
function defaultRoutes(ips: readonly CniIp[], routes: readonly CniRoute[]): readonly CniRoute[] {
  const found: CniRoute[] = [];
  for (const [family, dst] of [
    [4, "0.0.0.0/0"],
    [6, "::/0"],
  ] as const satisfies readonly (readonly [IpFamily, string])[]) {
    const gw = ips.find(({ address }) => parseCidr(address).family === family)?.gateway;
    const given = routes.some(
      (route) => route.gw !== undefined && canonicalCidr(route.dst) === dst,
    );
    if (gw !== undefined && !given) found.push({ dst, gw });
  }
  return found;
}

/**
 * Makes the pair with one message, the pod's end with its final name and hardware address, and sets the node's end up on the bridge. Gives the node's
 * end, whose `link` is the pod's.
 */
async function attachVeth(
  call: PluginCall,
  config: BridgeConfig,
  place: { readonly device: Link; readonly sandbox: Sandbox },
): Promise<Link> {
  const { host } = call;
  const name = hostVethName(call.containerId, call.ifName);
  const mtu = config.mtu === undefined ? {} : { mtu: config.mtu };
  const mac = config.mac === undefined ? {} : { mac: config.mac };
  const created = host.createLink({
    name,
    ...mtu,
    data: {
      kind: "veth",
      peer: { name: call.ifName, ...mtu, ...mac, netnsFd: place.sandbox.netns.fd },
    },
  });
  const [made, found] = await Promise.allSettled([created, requireHostLink(call, name)]);
  if (made.status === "rejected") throw await vethFailure(call, place.sandbox, made.reason);
  if (found.status === "rejected") throw found.reason;
  const port = found.value;
  const acceptRa = `net/ipv6/conf/${name}/accept_ra`;
  writeSysctls(undefined, [{ path: acceptRa, value: "0", optional: true }]);
  await setUpPort(call, config, { port, bridge: place.device });
  return port;
}

/**
 * Nobody reaches an address of a bridge's port, but each of them makes every change of the node's links slower, and the kernel sends neighbour
 * solicitations and listener reports for it while it holds the lock of all of them: a port gets no link-local address. It comes up when it has its settings.
 */
async function setUpPort(
  call: PluginCall,
  config: BridgeConfig,
  { port, bridge }: { readonly port: Link; readonly bridge: Link },
): Promise<void> {
  const { host } = call;
  const { index } = port;
  const noIpv6 = (error: unknown) => {
    if (errorCode(error) !== "EAFNOSUPPORT") throw error;
  };
  const joined = [
    host.changeLink(index, { ipv6AddressMode: "none" }).catch(noIpv6),
    host.changeLink(index, { master: bridge.index }),
  ];
  const { hairpinMode: hairpin, portIsolation: isolated } = config;
  if (hairpin || isolated || config.vlan !== undefined || config.trunk !== undefined) {
    await together(joined);
    if (hairpin || isolated) {
      await host.setBridgePort(index, {
        ...(hairpin && { hairpin }),
        ...(isolated && { isolated }),
      });
    }
    await setPortVlans(call, port, config);
  }
  await together([...joined, host.changeLink(index, { up: true })]);
}

async function vethFailure(call: PluginCall, sandbox: Sandbox, error: unknown): Promise<CniError> {
  const action = `create interface "${call.ifName}" of network "${call.network}"`;
  if (errorCode(error) !== "EEXIST") return asCniError(error, cniCode.internal, action);
  const taken = (await sandbox.rtnl.getLink({ name: call.ifName })) !== undefined;
  return taken
    ? new CniError(
        cniCode.invalidEnvironment,
        `${action}: an interface of that name exists already in "${sandbox.path}" (CNI_IFNAME)`,
        { cause: error },
      )
    : new CniError(
        cniCode.tryAgainLater,
        `${action}: an earlier ADD of this attachment left "${hostVethName(call.containerId, call.ifName)}": run DEL first`,
        { cause: error },
      );
}

function podInterfaces(call: PluginCall, sandbox: Sandbox, pod: Link): CniResult["interfaces"] {
  const name = hostVethName(call.containerId, call.ifName);
  const mac = pod.mac === undefined ? {} : { mac: pod.mac };
  const own = { name: call.ifName, ...mac, mtu: pod.mtu, sandbox: sandbox.path };
  return [{ name: "" }, { name }, own];
}

/** Gives the bridge (or its VLAN's gateway interface, which is returned) the gateways' addresses and lets the node forward. */
async function setUpGateways(
  call: PluginCall,
  config: BridgeConfig,
  place: { readonly device: Link; readonly ips: readonly CniIp[] },
): Promise<Link | undefined> {
  if (!config.isGateway || place.ips.length === 0) return undefined;
  const { vlan, preserveDefaultVlan } = config;
  const vlanGateway =
    vlan === undefined
      ? undefined
      : await ensureVlanGateway(call, { bridge: place.device, vlan, preserveDefaultVlan });
  const families = new Set<IpFamily>();
  for (const ip of place.ips) {
    if (ip.gateway === undefined) continue;
    const gateway = parseIp(ip.gateway);
    const address = withPrefix(gateway, parseCidr(ip.address).prefixLength);
    const link = vlanGateway ?? place.device;
    await ensureGatewayAddress(call, { link, address, force: config.forceAddress });
    families.add(gateway.family);
  }
  writeSysctls(undefined, [...families].map(forwarding));
  return vlanGateway;
}

/** Waits until the bridge forwards to the port: before, the pod's first packets would be lost. */
async function awaitPort(call: PluginCall, { index, name }: Link): Promise<Link> {
  const end = performance.now() + portLimitMs;
  for (let pause = 1; performance.now() < end; pause = Math.min(pause * 2, longestPauseMs)) {
    const port = await requireLink(call.host, { index, name });
    if (port.operState === operUp) return port;
    await setTimeout(pause, undefined, { signal: call.signal });
  }
  throw new CniError(
    cniCode.tryAgainLater,
    `attach interface "${call.ifName}" of network "${call.network}": its bridge port "${name}" did not come up within ${portLimitMs} ms`,
  );
}

/** Fills in the hardware addresses of the node's side: the bridge, its port, and the gateway's interface if there is one. */
function finish(
  config: BridgeConfig,
  result: CniResult,
  hostSide: readonly (Link | undefined)[],
): CniResult {
  const [, , pod] = result.interfaces;
  const entries = hostSide.filter((link) => link !== undefined);
  const [first, second, ...further] = entries.map(({ name, mac }) => ({
    name,
    ...(mac !== undefined && { mac }),
  }));
  return {
    ...result,
    interfaces: [first, second, pod, ...further].filter((entry) => entry !== undefined),
    dns: config.dns ?? result.dns,
  };
}

async function del(call: PluginCall): Promise<void> {
  await deleteOwnVeth(call);
  if (call.config["macspoofchk"] === true) await deleteMacSpoofCheck(call);
  if (call.config["ipMasq"] === true) await deleteMasquerade(call);
  await call.ipam?.del();
}

async function gc(call: NetworkCall, valid: readonly ValidAttachment[]): Promise<void> {
  await together([gcMasquerade(call, valid), gcMacSpoofCheck(call, valid)]);
}

/** Deletes the pair by the node's end; the pod's end may have any name by now, or be gone with its namespace. */
async function deleteOwnVeth(call: PluginCall): Promise<void> {
  const name = hostVethName(call.containerId, call.ifName);
  const link = await call.host.getLink({ name });
  if (link?.kind !== "veth") return;
  await call.host.deleteLink({ index: link.index });
}
