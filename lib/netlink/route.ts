import {
  bitsOf,
  formatCidr,
  formatIp,
  type IpFamily,
  ipFromBytes,
  ipToBytes,
  networkOf,
  parseCidr,
  parseIp,
  withPrefix,
} from "../base/ip.ts";
import { AF_INET, AF_INET6 } from "./address.ts";
import { Attributes, AttributeWriter, NetlinkDecodeError } from "./attributes.ts";
import type { Route, RouteSpec } from "./model.ts";

/**
 * Route messages (RTM_NEWROUTE and friends; linux/rtnetlink.h struct rtmsg):
 *
 *   0        1         2         3     4       5          6       7      8       12
 *   | family | dst len | src len | tos | table | protocol | scope | type | flags | attributes |
 *
 * RTA_TABLE has the table where it does not fit a byte. RTA_METRICS nests RTAX_*. RTA_MULTIPATH is a list of
 *
 *   0        2       3      4       8
 *   | length | flags | hops | index | attributes of this next hop |
 */
const HEADER = 12;
const RTA = {
  dst: 1,
  oif: 4,
  gateway: 5,
  priority: 6,
  prefsrc: 7,
  metrics: 8,
  multipath: 9,
  table: 15,
  via: 18,
} as const;
const RTAX_MTU = 2;
const RTAX_ADVMSS = 8;
const NEXT_HOP_HEADER = 8;
const RTNH_F_ONLINK = 4;

export const routeTable = { main: 254, local: 255 } as const;
export const routeScope = { universe: 0, site: 200, link: 253, host: 254, nowhere: 255 } as const;
export const routeProtocol = { kernel: 2, boot: 3, static: 4 } as const;
export const routeType = {
  unicast: 1,
  local: 2,
  broadcast: 3,
  anycast: 4,
  multicast: 5,
  blackhole: 6,
  unreachable: 7,
} as const;

/**
 * The body of RTM_NEWROUTE. Host bits of the destination are cleared. Without a value: table main, protocol boot, type unicast, and as
 * `ip route` does, scope link for an IPv4 route without a gateway, else universe. Throws an IpError.
 */
export function emitRoute(spec: RouteSpec): Buffer {
  const destination = networkOf(parseCidr(spec.destination));
  const isDirect =
    destination.family === 4 &&
    spec.gateway === undefined &&
    (spec.type ?? routeType.unicast) === routeType.unicast;
  return emitRouteBody(spec, {
    scope: isDirect ? routeScope.link : routeScope.universe,
    protocol: routeProtocol.boot,
    type: routeType.unicast,
  });
}

/** The body of RTM_DELROUTE: what is absent matches any (table: main). Throws an IpError. */
export function emitRouteMatch(spec: RouteSpec): Buffer {
  return emitRouteBody(spec, { scope: routeScope.nowhere, protocol: 0, type: 0 });
}

function emitRouteBody(
  spec: RouteSpec,
  fallback: { scope: number; protocol: number; type: number },
): Buffer {
  const destination = networkOf(parseCidr(spec.destination));
  const table = spec.table ?? routeTable.main;
  const writer = new AttributeWriter()
    .u8(destination.family === 4 ? AF_INET : AF_INET6)
    .u8(destination.prefixLength)
    .u8(0)
    .u8(0)
    .u8(table > 255 ? 0 : table)
    .u8(spec.protocol ?? fallback.protocol)
    .u8(spec.scope ?? fallback.scope)
    .u8(spec.type ?? fallback.type)
    .u32(spec.onlink === true ? RTNH_F_ONLINK : 0);
  if (destination.prefixLength > 0) writer.attributeIp(RTA.dst, formatIp(destination));
  if (table > 255) writer.attributeU32(RTA.table, table);
  emitGateway(writer, destination.family, spec.gateway);
  if (spec.index !== undefined) writer.attributeU32(RTA.oif, spec.index);
  if (spec.priority !== undefined) writer.attributeU32(RTA.priority, spec.priority);
  if (spec.source !== undefined) writer.attributeIp(RTA.prefsrc, spec.source);
  emitMetrics(writer, spec);
  return writer.finish();
}

function emitGateway(writer: AttributeWriter, family: IpFamily, text: string | undefined): void {
  if (text === undefined) return;
  const gateway = parseIp(text);
  if (gateway.family === family) {
    writer.attributeIp(RTA.gateway, text);
    return;
  }
  // RTA_VIA (struct rtvia): a gateway of the other family, as in RFC 5549.
  const header = Buffer.of(gateway.family === 4 ? AF_INET : AF_INET6, 0);
  writer.attribute(RTA.via, Buffer.concat([header, ipToBytes(gateway)]));
}

function emitMetrics(writer: AttributeWriter, spec: RouteSpec): void {
  if (spec.mtu === undefined && spec.advmss === undefined) return;
  writer.fork(RTA.metrics);
  if (spec.mtu !== undefined) writer.attributeU32(RTAX_MTU, spec.mtu);
  if (spec.advmss !== undefined) writer.attributeU32(RTAX_ADVMSS, spec.advmss);
  writer.join();
}

export interface RouteFilter {
  readonly family?: IpFamily;
  readonly table?: number;
  readonly index?: number;
}

/** The body of the RTM_GETROUTE dump of one family; strict checking makes the kernel filter. */
export function emitRouteDump(family: IpFamily, filter: RouteFilter): Buffer {
  const writer = new AttributeWriter()
    .u8(family === 4 ? AF_INET : AF_INET6)
    .u8(0)
    .u16(0)
    .u32(0)
    .u32(0);
  if (filter.table !== undefined) writer.attributeU32(RTA.table, filter.table);
  if (filter.index !== undefined) writer.attributeU32(RTA.oif, filter.index);
  return writer.finish();
}

/** The body of the RTM_GETROUTE that asks for the way to one address. Throws an IpError. */
export function emitRouteQuery(destination: string): Buffer {
  const ip = parseIp(destination);
  return new AttributeWriter()
    .u8(ip.family === 4 ? AF_INET : AF_INET6)
    .u8(bitsOf(ip.family))
    .u16(0)
    .u32(0)
    .u32(0)
    .attributeIp(RTA.dst, destination)
    .finish();
}

/**
 * The routes of an RTM_NEWROUTE from the kernel: one for each next hop, none for a family that is not IP.
 * Throws a NetlinkDecodeError.
 */
export function parseRoutes(body: Buffer): Route[] {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("route", `${body.length} bytes are too few`);
  const kernelFamily = body.readUInt8(0);
  if (kernelFamily !== AF_INET && kernelFamily !== AF_INET6) return [];
  const found = new Attributes(body.subarray(HEADER), "route");
  const route = parseOne(body, found);
  const multipath = found.bytes(RTA.multipath);
  if (multipath === undefined) return [route];
  return parseNextHops(multipath).map((hop) => ({
    ...route,
    ...hop,
    flags: route.flags | hop.flags,
  }));
}

function parseOne(body: Buffer, found: Attributes): Route {
  const family = body.readUInt8(0) === AF_INET ? 4 : 6;
  const metrics = found.nested(RTA.metrics, "route metrics");
  return {
    family,
    destination: destinationOf(family, body.readUInt8(1), found.bytes(RTA.dst)),
    gateway: gatewayOf(found),
    index: found.u32(RTA.oif),
    table: found.u32(RTA.table) ?? body.readUInt8(4),
    priority: found.u32(RTA.priority),
    scope: body.readUInt8(6),
    protocol: body.readUInt8(5),
    type: body.readUInt8(7),
    source: found.ip(RTA.prefsrc),
    mtu: metrics?.u32(RTAX_MTU),
    advmss: metrics?.u32(RTAX_ADVMSS),
    flags: body.readUInt32LE(8),
  };
}

function destinationOf(family: IpFamily, prefixLength: number, bytes: Buffer | undefined): string {
  const wanted = bitsOf(family) / 8;
  if (prefixLength > bitsOf(family) || (bytes !== undefined && bytes.length !== wanted)) {
    throw new NetlinkDecodeError("route", "the destination does not fit its family");
  }
  return formatCidr(withPrefix(ipFromBytes(bytes ?? Buffer.alloc(wanted)), prefixLength));
}

function gatewayOf(found: Attributes): string | undefined {
  const via = found.bytes(RTA.via);
  if (via === undefined) return found.ip(RTA.gateway);
  if (via.length !== 6 && via.length !== 18)
    throw new NetlinkDecodeError("route", `RTA_VIA has ${via.length} bytes`);
  return formatIp(ipFromBytes(via.subarray(2)));
}

function parseNextHops(
  list: Buffer,
): { index: number; gateway: string | undefined; flags: number }[] {
  const hops = [];
  let at = 0;
  while (list.length - at >= NEXT_HOP_HEADER) {
    const length = list.readUInt16LE(at);
    if (length < NEXT_HOP_HEADER || at + length > list.length) {
      throw new NetlinkDecodeError("route", `next hop at byte ${at} has length ${length}`);
    }
    const attributes = new Attributes(list.subarray(at + NEXT_HOP_HEADER, at + length), "next hop");
    hops.push({
      index: list.readInt32LE(at + 4),
      gateway: gatewayOf(attributes),
      flags: list.readUInt8(at + 2),
    });
    at += (length + 3) & ~3;
  }
  return hops;
}
