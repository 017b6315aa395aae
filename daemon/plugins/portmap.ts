import {
  type Cidr,
  formatIp,
  ipToBytes,
  networkOf,
  parseCidr,
  withPrefix,
} from "../../lib/base/ip.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult, ValidAttachment } from "../../lib/cni/types.ts";
import { forgetConnections } from "../../lib/netlink/conntrack.ts";
import { concatenate } from "../../lib/netlink/nftables-codec.ts";
import {
  describeOwner,
  isGarbage,
  nftablesOf,
  nftOwner,
  type OwnedElement,
  ownsElements,
  putElements,
  removeElements,
  sweepElements,
  sweepOwner,
} from "./nftables/owned.ts";
import type { NetworkCall, Plugin, PluginCall } from "./plugin.ts";
import {
  decodePortmap,
  type PortMapping,
  type PortmapConfig,
  protocols,
} from "./portmap/config.ts";
import {
  conditionChain,
  everythingChain,
  nearChain,
  portmapFrame,
  portmapSets,
  portmapTable,
  portSets,
} from "./portmap/frame.ts";
import { asCniError } from "./shared/errors.ts";
import { drift } from "./shared/interface.ts";
import { writeSysctls } from "./shared/sysctl.ts";

/**
 * Chained type `portmap`: ports of the node that lead to ports of the pod (capability `portMappings`), by elements of podnet's own nftables table: one for
 * each port, one or two for the way back. Tables of others are not touched.
 */
export const portmap: Plugin = { add, del, check, gc };

async function add(call: PluginCall): Promise<CniResult> {
  const config = decodePortmap(call);
  const result = requirePrevResult(call);
  const pods = podAddresses(call, result);
  const elements = elementsOf(config, pods);
  warnOfUnmapped(call, config, pods);
  if (elements.length === 0) return result;
  if (config.snat) await routeLoopback(call, pods);
  const prefixes = pods.map((pod) => nearPrefix(config, pod));
  const frame = {
    table: portmapTable,
    changes: portmapFrame({ prefixes, conditions: config.conditions }),
  };
  const contested = ({ set, key }: OwnedElement, comment: string | undefined) => {
    if (portSets.includes(set)) throw portTaken(call, key, comment);
  };
  try {
    await putElements(call.host, elements, { frame, owner: nftOwner(call), contested });
    await forgetUdp(call, config.mappings);
  } catch (error) {
    throw asCniError(error, cniCode.ioFailure, `map host ports of network "${call.network}"`);
  }
  return result;
}

/** As in the reference no error: a pod with one family of addresses may be asked for ports of both. */
function warnOfUnmapped(call: PluginCall, config: PortmapConfig, pods: readonly Cidr[]): void {
  for (const { hostIP, hostPort, protocol } of config.mappings) {
    if (pods.some(({ family }) => hostIP === undefined || hostIP.family === family)) continue;
    const of = hostIP === undefined ? "" : ` of ${formatIp(hostIP)}`;
    const lacks = hostIP === undefined ? "no address" : `no IPv${hostIP.family} address`;
    call.log?.warn(
      `host port ${hostPort}/${protocol}${of} is not mapped: the pod has ${lacks} on network "${call.network}"`,
    );
  }
}

/** A connection that the node tracked before the port was mapped would go past the mapping for as long as it lives. */
async function forgetUdp(call: PluginCall, mappings: readonly PortMapping[]): Promise<void> {
  const ports = mappings
    .filter(({ protocol }) => protocol === "udp")
    .map(({ hostPort }) => hostPort);
  for (const port of new Set(ports))
    await forgetConnections(nftablesOf(call.host).netfilter, { protocol: protocols.udp, port });
}

async function del(call: PluginCall): Promise<void> {
  const owner = nftOwner(call);
  const options = { table: portmapTable, owner };
  const expected = expectedElements(call);
  try {
    const removed = await removeElements(call.host, expected, options);
    if (removed > 0 && removed === expected.length) return;
    // Most pods map no ports: only when one is left is the rest looked for.
    const isMapped =
      expected.length > 0 ||
      (await ownsElements(call.host, portmapTable, { sets: portSets, owner }));
    // All of them in one step: what a killed DEL had left without its port would not be looked for again.
    if (isMapped) await sweepOwner(call.host, portmapTable, { sets: portmapSets, owner });
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `end port mappings of interface "${call.ifName}" of network "${call.network}"`,
    );
  }
}

/** What ADD made, as far as configuration and result still tell; DEL has to work without either. */
function expectedElements(call: PluginCall): OwnedElement[] {
  try {
    const { prevResult } = call;
    return prevResult === undefined
      ? []
      : elementsOf(decodePortmap(call), podAddresses(call, prevResult));
  } catch (error) {
    if (error instanceof CniError) return [];
    throw error;
  }
}

async function check(call: PluginCall): Promise<void> {
  const config = decodePortmap(call);
  const pods = podAddresses(call, requirePrevResult(call));
  const nftables = nftablesOf(call.host);
  const { id } = nftOwner(call);
  const elements = elementsOf(config, pods);
  for (const { set, key, data } of elements) {
    const element = await nftables.element(portmapTable, set, key);
    const isOurs = element?.comment?.startsWith(`${id} `) === true && sameData(element.data, data);
    if (!isOurs) throw drift(call, `port mapping lacks its element in nftables set "${set}"`);
  }
  if (elements.length === 0) return;
  for (const [chain, count] of [
    ["prerouting", 2],
    ["output", 2],
    ["postrouting", 3],
    ["hostports", 8],
    ["mapped", 4],
  ] as const) {
    if ((await nftables.rules(portmapTable, chain)).length < count)
      throw drift(call, `rules of nftables chain "${chain}" are missing`);
  }
}

function sameData(left: OwnedElement["data"], right: OwnedElement["data"]): boolean {
  if (left instanceof Uint8Array)
    return right instanceof Uint8Array && Buffer.from(left).equals(right);
  return JSON.stringify(left) === JSON.stringify(right);
}

async function gc(call: NetworkCall, valid: readonly ValidAttachment[]): Promise<void> {
  const isMine = isGarbage(call.network, valid);
  try {
    await sweepElements(call.host, portmapTable, { sets: portmapSets, isMine });
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `collect port mappings of network "${call.network}"`,
    );
  }
}

function requirePrevResult(call: PluginCall): CniResult {
  if (call.prevResult !== undefined) return call.prevResult;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `map host ports of network "${call.network}": portmap must follow a plugin that makes an interface ("prevResult" is missing)`,
  );
}

/** The first address of each family that the attachment's own interface has. */
function podAddresses(call: PluginCall, result: CniResult): Cidr[] {
  const own = result.ips.filter(({ interface: index }) => {
    if (index === undefined) return true;
    const link = result.interfaces[index];
    return (
      link === undefined ||
      (link.name === call.ifName && link.sandbox !== undefined && link.sandbox !== "")
    );
  });
  const cidrs = own.map(({ address }) => parseCidr(address));
  return ([4, 6] as const).flatMap((family) => cidrs.find((cidr) => cidr.family === family) ?? []);
}

function nearPrefix(config: PortmapConfig, pod: Cidr): Cidr {
  return config.wholeSubnet ? networkOf(pod) : withPrefix(pod, pod.family === 4 ? 32 : 128);
}

function elementsOf(config: PortmapConfig, pods: readonly Cidr[]): OwnedElement[] {
  return pods.flatMap((pod) => {
    const mappings = config.mappings.filter(
      ({ hostIP }) => hostIP === undefined || hostIP.family === pod.family,
    );
    if (mappings.length === 0) return [];
    return [
      ...mappings.flatMap((mapping) => mappingElements(config, pod, mapping)),
      ...(config.snat ? answerElements(config, pod) : []),
    ];
  });
}

function mappingElements(config: PortmapConfig, pod: Cidr, mapping: PortMapping): OwnedElement[] {
  const { family } = pod;
  const port = concatenate(
    Uint8Array.of(protocols[mapping.protocol]),
    bigEndian16(mapping.hostPort),
  );
  // 0.0.0.0 and :: are every address of their family.
  const hostIP =
    mapping.hostIP === undefined || mapping.hostIP.value === 0n
      ? undefined
      : ipToBytes(mapping.hostIP);
  const key = hostIP === undefined ? port : concatenate(hostIP, port);
  const data = concatenate(ipToBytes(pod), bigEndian16(mapping.containerPort));
  const conditions = config.conditions[family];
  const names =
    hostIP === undefined
      ? { port: `ports${family}`, when: `when${family}` }
      : { port: `hostip${family}`, when: `hostip-when${family}` };
  if (conditions.length === 0) return [{ set: names.port, key, data }];
  const chain = conditionChain(conditions, family);
  return [
    { set: names.port, key, data },
    { set: names.when, key, data: { kind: "goto", chain } },
  ];
}

function answerElements(config: PortmapConfig, pod: Cidr): OwnedElement[] {
  const address = ipToBytes(pod);
  const { family } = pod;
  const near = nearPrefix(config, pod);
  const chain = config.masqueradeAll ? everythingChain : nearChain(near);
  return [
    { set: `answer${family}`, key: address, data: { kind: "goto", chain } },
    { set: `near${family}`, key: concatenate(address, ipToBytes(near)) },
  ];
}

function bigEndian16(value: number): Uint8Array {
  return Uint8Array.of(value >>> 8, value & 255);
}

/** The node drops what comes from 127.0.0.1 and leaves by a link, unless that link has route_localnet. */
async function routeLoopback(call: PluginCall, pods: readonly Cidr[]): Promise<void> {
  const pod = pods.find(({ family }) => family === 4);
  if (pod === undefined) return;
  const route = await call.host.routeTo(formatIp(pod));
  const link =
    route?.index === undefined ? undefined : await call.host.getLink({ index: route.index });
  if (link === undefined) return;
  writeSysctls(call.host.netns, [
    { path: `net/ipv4/conf/${link.name}/route_localnet`, value: "1" },
  ]);
}

function portTaken(call: PluginCall, key: Uint8Array, comment: string | undefined): CniError {
  const port = Buffer.from(key).readUInt16BE(key.length - 4);
  const protocol =
    Object.entries(protocols).find(([, number]) => number === key[key.length - 8])?.[0] ?? "";
  return new CniError(
    cniCode.tryAgainLater,
    `map host port ${port}/${protocol} of network "${call.network}": it belongs to ${describeOwner(comment)}: choose another host port or delete that pod`,
  );
}
