import { z } from "zod";
import { formatCidr, networkOf, parseCidr } from "../../lib/base/ip.ts";
import { together } from "../../lib/base/together.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniIp, CniResult } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import {
  addMasquerade,
  checkMasquerade,
  deleteMasquerade,
  gcMasquerade,
} from "./nftables/masquerade.ts";
import type { Plugin, PluginCall, Sandbox } from "./plugin.ts";
import { announce } from "./shared/announce.ts";
import { decodeConfig, optional } from "./shared/config.ts";
import { asCniError } from "./shared/errors.ts";
import {
  checkForwarding,
  checkInterface,
  configureInterface,
  drift,
  forwarding,
} from "./shared/interface.ts";
import {
  chooseIndex,
  madeIndex,
  madeLinkState,
  requireFreeName,
  requireLink,
  requireSandbox,
} from "./shared/made-link.ts";
import {
  configuredDns,
  interfaceOf,
  ipamResult,
  requireIpam,
  requireOwnInterface,
} from "./shared/made-type.ts";
import { writeSysctls } from "./shared/sysctl.ts";
import { mtuWithin } from "./shared/type-fields.ts";

/** RT_SCOPE_* of linux/rtnetlink.h. */
const scope = { universe: 0, link: 253, host: 254 } as const;

const schema = z.object({
  ipMasq: optional(z.boolean()),
  ipMasqBackend: optional(
    z.enum(["iptables", "nftables"], { error: 'must be "iptables" or "nftables"' }),
  ),
  mtu: mtuWithin(68, 65535),
});
type Config = z.output<typeof schema>;

/** An address of the pod, and the gateway that the node's end of the pair is for it. */
interface Pair {
  readonly address: string;
  readonly gateway: string;
}

/**
 * The reference's ptp: a veth pair without a bridge. The node's end has the gateway addresses; the pod reaches everything, its own subnet
 * included, by way of them.
 */
export const ptp: Plugin = { add, del, check, gc: gcMasquerade };

function decodePtp(call: PluginCall): Config {
  return decodeConfig(schema, call.config, { network: call.network, plugin: "ptp" });
}

async function add(call: PluginCall): Promise<CniResult> {
  const config = decodePtp(call);
  const sandbox = requireSandbox(call);
  requireIpam("ptp", call);
  const dns = configuredDns(call);
  await requireFreeName(call, sandbox);
  const addresses = await ipamResult(call);
  const pairs = addresses.ips.map((ip) => pairOf(call, ip));
  enableForwarding(addresses.ips);
  try {
    const { node, pod } = await makePair(call, sandbox, config);
    const result: CniResult = {
      interfaces: [interfaceOfNode(node), interfaceOf(sandbox, pod)],
      ips: addresses.ips.map((ip) => ({ ...ip, interface: 1 })),
      routes: addresses.routes,
      dns: Object.keys(dns).length > 0 ? dns : addresses.dns,
    };
    await configureInterface(call, sandbox, { link: pod, setup: { result, index: 1 } });
    await together([
      ...pairs.map((pair) => routeByGateway(sandbox, pod, pair)),
      ...pairs.map((pair) => setUpNodeEnd(call, node, pair)),
    ]);
    if (config.ipMasq)
      await addMasquerade(
        call,
        pairs.map((pair) => pair.address),
      );
    announce(sandbox, pod, result.ips);
    return result;
  } catch (error) {
    const action = `make ptp interface "${call.ifName}" of network "${call.network}"`;
    throw asCniError(error, cniCode.internal, action);
  }
}

/** Lets the node route for the families of the addresses. It stays on: others may rely on it by then. */
function enableForwarding(ips: readonly CniIp[]): void {
  const families = new Set(ips.map((ip) => parseCidr(ip.address).family));
  writeSysctls(undefined, [...families].map(forwarding));
}

function pairOf(call: PluginCall, ip: CniIp): Pair {
  if (ip.gateway !== undefined) return { address: ip.address, gateway: ip.gateway };
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": address "${ip.address}" has no gateway, which ptp needs: set it in "ipam"`,
  );
}

function interfaceOfNode(link: Link): CniResult["interfaces"][number] {
  return {
    name: link.name,
    ...(link.mac === undefined ? {} : { mac: link.mac }),
    mtu: link.mtu,
  };
}

/** The node's end is the one that is known by its index: whatever becomes of the pod, deleting it deletes both. */
async function makePair(
  call: PluginCall,
  sandbox: Sandbox,
  config: Config,
): Promise<{ readonly node: Link; readonly pod: Link }> {
  const index = chooseIndex();
  await call.state.save(madeLinkState(index));
  const name = `veth${index.toString(16)}`;
  const mtu = config.mtu === undefined ? {} : { mtu: config.mtu };
  const [, node] = await together([
    call.host.createLink({
      name,
      index,
      up: true,
      ...mtu,
      data: { kind: "veth", peer: { name: call.ifName, netnsFd: sandbox.netns.fd, ...mtu } },
    }),
    requireLink(call.host, { index, name }),
  ]);
  // The node's end takes no addresses from router advertisements of the pod.
  const acceptRa = `net/ipv6/conf/${name}/accept_ra`;
  writeSysctls(undefined, [{ path: acceptRa, value: "0", optional: true }]);
  const pod = await requireLink(sandbox.rtnl, { index: node.link ?? 0, name: call.ifName });
  return { node, pod };
}

function hostPrefix(address: string): string {
  return address.includes(":") ? `${address}/128` : `${address}/32`;
}

function withoutPrefix(address: string): string {
  return address.replace(/\/\d+$/, "");
}

/** Nothing is on the link but the gateway: the pod's own subnet goes by it, too. */
async function routeByGateway(sandbox: Sandbox, pod: Link, pair: Pair): Promise<void> {
  const subnet = formatCidr(networkOf(parseCidr(pair.address)));
  const source = withoutPrefix(pair.address);
  const { rtnl } = sandbox;
  // They reach the kernel in this order.
  await together([
    rtnl.deleteRoute({ destination: subnet, index: pod.index }),
    rtnl.addRoute({
      destination: hostPrefix(pair.gateway),
      index: pod.index,
      scope: scope.link,
      source,
    }),
    rtnl.addRoute({
      destination: subnet,
      gateway: pair.gateway,
      index: pod.index,
      scope: scope.universe,
      source,
    }),
  ]);
}

async function setUpNodeEnd(call: PluginCall, node: Link, pair: Pair): Promise<void> {
  const route = {
    destination: hostPrefix(withoutPrefix(pair.address)),
    index: node.index,
    scope: scope.host,
  };
  await together([
    call.host.addAddress({ index: node.index, address: hostPrefix(pair.gateway) }),
    call.host.addRoute(route),
  ]);
}

async function del(call: PluginCall): Promise<void> {
  const index = madeIndex(call);
  const steps: (() => Promise<unknown> | undefined)[] = [
    // Not decoded: DEL must not fail for a configuration that is no longer valid.
    () => (call.config["ipMasq"] === true ? deleteMasquerade(call) : undefined),
    () => call.ipam?.del(),
    () => (index === undefined ? undefined : call.host.deleteLink({ index })),
  ];
  const errors: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length === 0) return;
  const action = `delete ptp interface "${call.ifName}" of network "${call.network}"`;
  throw asCniError(errors[0], cniCode.tryAgainLater, action);
}

async function check(call: PluginCall): Promise<void> {
  const sandbox = requireSandbox(call);
  const { link, result } = await requireOwnInterface(call, sandbox);
  await call.ipam?.check();
  if (link.kind !== "veth") throw drift(call, `interface "${link.name}": it is not a veth`);
  await checkNodeEnd(call, result);
  if (decodePtp(call).ipMasq) {
    const own = result.ips.filter(
      (ip) => result.interfaces[ip.interface ?? -1]?.name === link.name,
    );
    await checkMasquerade(
      call,
      own.map((ip) => ip.address),
    );
  }
  await checkInterface(call, sandbox, { link, result });
  await checkByGateway(call, sandbox, { pod: link, result });
}

/** The pod's subnets are still reached by way of the node, and nothing else is on the link. */
async function checkByGateway(
  call: PluginCall,
  { rtnl }: Sandbox,
  { pod, result }: { readonly pod: Link; readonly result: CniResult },
): Promise<void> {
  const routes = await rtnl.routes({ index: pod.index });
  for (const { address, gateway } of result.ips) {
    if (gateway === undefined) continue;
    const subnet = formatCidr(networkOf(parseCidr(address)));
    const direct = hostPrefix(gateway);
    const isThere = (destination: string, via: string | undefined): boolean =>
      routes.some((route) => route.destination === destination && route.gateway === via);
    if (isThere(direct, undefined) && isThere(subnet, gateway)) continue;
    throw drift(call, `interface "${pod.name}" lacks the routes to "${subnet}" by "${gateway}"`);
  }
}

async function checkNodeEnd(call: PluginCall, result: CniResult): Promise<void> {
  const index = madeIndex(call);
  const node = index === undefined ? undefined : await call.host.getLink({ index });
  if (node === undefined) throw drift(call, "the node's end of the veth pair is gone");
  if (!node.up) throw drift(call, `interface "${node.name}" of the node is down`);
  const mtu = result.interfaces.find(({ name }) => name === node.name)?.mtu;
  if (mtu !== undefined && mtu !== node.mtu) {
    throw drift(call, `interface "${node.name}" of the node has MTU ${node.mtu} instead of ${mtu}`);
  }
  const has = new Set((await call.host.addresses(node.index)).map(({ address }) => address));
  const routes = await call.host.routes({ index: node.index });
  for (const { address, gateway } of result.ips) {
    checkForwarding(call, parseCidr(address).family);
    if (gateway !== undefined && !has.has(hostPrefix(gateway))) {
      throw drift(call, `interface "${node.name}" of the node lacks address "${gateway}"`);
    }
    const destination = hostPrefix(withoutPrefix(address));
    if (!routes.some((route) => route.destination === destination)) {
      throw drift(call, `interface "${node.name}" of the node lacks the route to "${destination}"`);
    }
  }
}
