import { setTimeout } from "node:timers/promises";
import {
  type Cidr,
  canonicalCidr,
  canonicalIp,
  formatCidr,
  formatIp,
  type IpFamily,
  lastIp,
  networkOf,
  parseCidr,
} from "../../../lib/base/ip.ts";
import { together } from "../../../lib/base/together.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { CniIp, CniResult, CniRoute } from "../../../lib/cni/types.ts";
import type { Address, Link, Route, RouteSpec } from "../../../lib/netlink/model.ts";
import type { PluginCall, Sandbox } from "../plugin.ts";
import { findOwner } from "./duplicate.ts";
import { asCniError } from "./errors.ts";
import { requireLink } from "./made-link.ts";
import { readSysctl, type Sysctl, writeSysctls } from "./sysctl.ts";

/** IFA_F_* of linux/if_addr.h. */
const tentative = 0x40;
const dadFailed = 0x08;
/** RT_TABLE_MAIN, RTPROT_BOOT and RT_SCOPE_UNIVERSE of linux/rtnetlink.h: what the reference gives its routes. */
const mainTable = 254;
const bootProtocol = 3;
const universe = 0;

const settleLimitMs = 10_000;
const longestPauseMs = 50;
/** How long a link may take to find its carrier after it was set up. */
const carrierLimitMs = 500;
/** IFF_LOWER_UP of linux/if.h. */
const lowerUp = 0x10000;

type NamedLink = Pick<Link, "index" | "name">;

/** How an interface of a pod is set up. */
export interface InterfaceSetup {
  /** Its `ips` whose `interface` is this one's index are given to it, and all its `routes`. */
  readonly result: CniResult;
  /** Index of the interface in the result. */
  readonly index: number;
  /** true: IPv6 duplicate address detection is on, and waited for; false: off; absent: as the kernel has it. */
  readonly dad?: boolean | undefined;
  /** Announce IPv4 addresses (gratuitous ARP) and IPv6 addresses (unsolicited neighbour advertisement) when the interface comes up. */
  readonly notify?: { readonly arp?: boolean; readonly ndisc?: boolean } | undefined;
}

/**
 * Gives a link in the sandbox its addresses, sets it up, waits until its IPv6 addresses are usable and adds the routes.
 * The addresses come before the link is up, so that the kernel announces them. Throws a CniError that names address or route; code 108
 * for an address that somebody else on the network has.
 */
export async function configureInterface(
  call: PluginCall,
  sandbox: Sandbox,
  { link, setup }: { readonly link: NamedLink; readonly setup: InterfaceSetup },
): Promise<void> {
  const ips = setup.result.ips.filter((ip) => ip.interface === setup.index);
  const ipv6 = ips.some((ip) => parseCidr(ip.address).family === 6);
  writeSysctls(sandbox.netns, interfaceSysctls(link.name, ipv6, setup));
  await together([
    ...ips.map((ip) => addAddress(call, sandbox, { link, ip })),
    sandbox.rtnl.changeLink(link.index, { up: true }),
  ]);
  if (ipv6) await settle(call, sandbox, link);
  await together(
    setup.result.routes.map((route) => addRoute(call, sandbox, routeSpec(link, route, ips))),
  );
}

function interfaceSysctls(name: string, ipv6: boolean, setup: InterfaceSetup): readonly Sysctl[] {
  const settings: Sysctl[] = [];
  const v6 = `net/ipv6/conf/${name}`;
  if (setup.dad === true) settings.push({ path: `${v6}/enhanced_dad`, value: "1", optional: true });
  if (setup.dad !== undefined) {
    settings.push({ path: `${v6}/accept_dad`, value: setup.dad ? "1" : "0", optional: true });
  }
  if (setup.notify?.arp === true) {
    settings.push({ path: `net/ipv4/conf/${name}/arp_notify`, value: "1", optional: true });
  }
  if (setup.notify?.ndisc === true) {
    settings.push({ path: `${v6}/ndisc_notify`, value: "1", optional: true });
  }
  if (ipv6) {
    settings.push({ path: "net/ipv6/conf/lo/disable_ipv6", value: "0", optional: true });
    settings.push({ path: `${v6}/disable_ipv6`, value: "0" });
    settings.push({ path: `${v6}/keep_addr_on_down`, value: "1", optional: true });
  }
  return settings;
}

async function addAddress(
  call: PluginCall,
  sandbox: Sandbox,
  { link, ip }: { readonly link: NamedLink; readonly ip: CniIp },
): Promise<void> {
  const cidr = parseCidr(ip.address);
  try {
    await sandbox.rtnl.addAddress({
      index: link.index,
      address: formatCidr(cidr),
      ...broadcastOf(cidr),
    });
  } catch (error) {
    const action = `add address "${ip.address}" to interface "${link.name}" of network "${call.network}"`;
    throw asCniError(error, cniCode.internal, action);
  }
}

/** The broadcast address of an IPv4 network that has one, as the reference sets it. */
export function broadcastOf(cidr: Cidr): { readonly broadcast?: string } {
  if (cidr.family === 6 || cidr.prefixLength > 30) return {};
  return { broadcast: formatIp(lastIp(cidr)) };
}

/**
 * Waits until no IPv6 address is tentative. The kernel gives up detection by itself in time; after ten seconds the addresses are left as
 * they are.
 */
async function settle(call: PluginCall, sandbox: Sandbox, link: NamedLink): Promise<void> {
  const end = performance.now() + settleLimitMs;
  const carrierEnd = performance.now() + carrierLimitMs;
  for (let pause = 1; performance.now() < end; pause = Math.min(pause * 2, longestPauseMs)) {
    const addresses = (await sandbox.rtnl.addresses(link.index)).filter(isGlobalIpv6);
    const duplicate = addresses.find(({ flags }) => (flags & dadFailed) !== 0);
    if (duplicate !== undefined) throw await duplicateAddress(call, sandbox, { link, duplicate });
    if (addresses.every(({ flags }) => (flags & tentative) === 0)) return;
    // Without a carrier detection does not even begin, and may never.
    if (performance.now() > carrierEnd && !(await hasCarrier(sandbox, link))) return;
    await setTimeout(pause, undefined, { signal: call.signal });
  }
}

function isGlobalIpv6({ address, scope }: Address): boolean {
  return address.includes(":") && scope === universe;
}

async function hasCarrier(sandbox: Sandbox, link: NamedLink): Promise<boolean> {
  const now = await sandbox.rtnl.getLink({ index: link.index });
  return now !== undefined && (now.flags & lowerUp) !== 0;
}

async function duplicateAddress(
  call: PluginCall,
  sandbox: Sandbox,
  found: { readonly link: NamedLink; readonly duplicate: Address },
): Promise<CniError> {
  const { duplicate } = found;
  const link = await requireLink(sandbox.rtnl, found.link);
  const address = duplicate.address.replace(/\/\d+$/, "");
  const owner = await findOwner(sandbox, link, { address, signal: call.signal });
  const who = owner === undefined ? "another host" : `hardware address "${owner}"`;
  return new CniError(
    cniCode.addressUnavailable,
    `add address "${duplicate.address}" to interface "${link.name}" of network "${call.network}": ${who} on the network has it (duplicate address detection)`,
  );
}

/** A route of a result as the kernel gets it: without `gw` it takes the first gateway of its family. */
function routeSpec(link: NamedLink, route: CniRoute, ips: readonly CniIp[]): RouteSpec {
  const destination = parseCidr(route.dst);
  const gateway = route.gw ?? gatewayOf(ips, destination.family);
  return {
    destination: formatCidr(networkOf(destination)),
    index: link.index,
    protocol: bootProtocol,
    scope: route.scope ?? universe,
    ...(gateway !== undefined && { gateway: canonicalIp(gateway) }),
    ...(route.table !== undefined && { table: route.table }),
    ...(route.priority !== undefined && { priority: route.priority }),
    ...(route.mtu !== undefined && { mtu: route.mtu }),
    ...(route.advmss !== undefined && { advmss: route.advmss }),
  };
}

function gatewayOf(ips: readonly CniIp[], family: 4 | 6): string | undefined {
  return ips.find((ip) => ip.gateway !== undefined && parseCidr(ip.address).family === family)
    ?.gateway;
}

async function addRoute(call: PluginCall, sandbox: Sandbox, spec: RouteSpec): Promise<void> {
  try {
    await sandbox.rtnl.addRoute(spec, "append");
  } catch (error) {
    const via = spec.gateway === undefined ? "" : ` via "${spec.gateway}"`;
    const action = `add route to "${spec.destination}"${via} of network "${call.network}"`;
    throw asCniError(error, cniCode.internal, action);
  }
}

/**
 * Rejects (code 999) when the link lacks an address or a route of the result. Addresses and routes that others added are no fault.
 */
export async function checkInterface(
  call: PluginCall,
  sandbox: Sandbox,
  { link, result }: { readonly link: Link; readonly result: CniResult },
): Promise<void> {
  const index = result.interfaces.findIndex(
    ({ name, sandbox: path }) => name === link.name && path !== undefined && path !== "",
  );
  const ips = result.ips.filter((ip) => ip.interface === index);
  const present = await sandbox.rtnl.addresses(link.index);
  const flags = new Map(present.map((one) => [one.address, one.flags]));
  for (const { address } of ips) {
    const found = flags.get(canonicalCidr(address));
    if (found === undefined) {
      throw drift(call, `interface "${link.name}" lacks address "${address}"`);
    }
    if ((found & dadFailed) !== 0) {
      throw drift(call, `another host has address "${address}" of interface "${link.name}"`);
    }
  }
  if (result.routes.length === 0) return;
  const routes = await sandbox.rtnl.routes();
  for (const route of result.routes) {
    const wanted = routeSpec(link, route, ips);
    if (routes.some((present) => isRoute(present, wanted) && hasFields(present, wanted))) continue;
    const near = routes.find((present) => isRoute(present, wanted));
    throw drift(call, `interface "${link.name}" ${routeFault(wanted, near)}`);
  }
}

function routeFault(wanted: RouteSpec, near: Route | undefined): string {
  const via = wanted.gateway === undefined ? "" : ` via "${wanted.gateway}"`;
  const route = `the route to "${wanted.destination}"${via}`;
  if (near === undefined) return `lacks ${route}`;
  const { priority, scope, mtu, advmss } = near;
  const fields = Object.entries({ priority, scope, mtu, advmss });
  return `has ${route} with ${fields.map(([key, value]) => `${key} ${value ?? "none"}`).join(", ")}`;
}

function isRoute(present: Route, wanted: RouteSpec): boolean {
  return (
    present.destination === wanted.destination &&
    present.table === (wanted.table ?? mainTable) &&
    present.index === wanted.index &&
    present.gateway === wanted.gateway
  );
}

/** IP6_RT_PRIO_USER of linux/ipv6_route.h: what the kernel takes for no priority. */
const defaultPriority = { 4: 0, 6: 1024 } as const;

function hasFields(present: Route, wanted: RouteSpec): boolean {
  const { family } = present;
  return (
    (present.priority ?? 0) === (wanted.priority || defaultPriority[family]) &&
    present.mtu === (wanted.mtu || undefined) &&
    present.advmss === (wanted.advmss || undefined) &&
    // IPv6 routes have no scope.
    (family === 6 || present.scope === (wanted.scope ?? universe))
  );
}

/** Rejects (code 999) when the node does not route for a family, as pods behind a gateway of the node need it. */
export function checkForwarding(call: PluginCall, family: IpFamily): void {
  const { path } = forwarding(family);
  if (readSysctl(undefined, path) !== "0") return;
  throw drift(call, `the node does not forward IPv${family} any more (${path} is 0)`);
}

/** What lets the node route for a family. */
export function forwarding(family: IpFamily): Sysctl {
  const path = family === 4 ? "net/ipv4/ip_forward" : "net/ipv6/conf/all/forwarding";
  return { path, value: "1" };
}

/** What CHECK reports: the attachment is not as its result says. */
export function drift(call: PluginCall, text: string): CniError {
  return new CniError(
    cniCode.internal,
    `check network "${call.network}": ${text}: delete and recreate the pod`,
  );
}
