import { parseIp } from "../base/ip.ts";
import { AF_INET, AF_INET6 } from "./address.ts";
import { Attributes, AttributeWriter, NetlinkDecodeError } from "./attributes.ts";
import type { Neighbour } from "./model.ts";

/**
 * Neighbours (RTM_NEWNEIGH and friends; linux/neighbour.h struct ndmsg):
 *
 *   0        1     4       8       10      11     12
 *   | family | pad | index | state | flags | type | attributes |
 */
const HEADER = 12;
const NDA = { dst: 1, lladdr: 2, ifindex: 8 } as const;

export const neighbourState = {
  incomplete: 1,
  reachable: 2,
  stale: 4,
  delay: 8,
  probe: 16,
  failed: 32,
  noarp: 64,
  permanent: 128,
} as const;

/** The body of RTM_NEWNEIGH and RTM_DELNEIGH. Throws an IpError. */
export function emitNeighbour(spec: Neighbour): Buffer {
  const writer = new AttributeWriter()
    .u8(parseIp(spec.address).family === 4 ? AF_INET : AF_INET6)
    .u8(0)
    .u16(0)
    .u32(spec.index)
    .u16(spec.state)
    .u8(spec.flags)
    .u8(0)
    .attributeIp(NDA.dst, spec.address);
  if (spec.mac !== undefined) writer.attributeMac(NDA.lladdr, spec.mac);
  return writer.finish();
}

/** The body of the RTM_GETNEIGH dump of both IP families; 0 is every link. */
export function emitNeighbourDump(index: number): Buffer {
  const writer = new AttributeWriter().u32(0).u32(0).u32(0);
  if (index !== 0) writer.attributeU32(NDA.ifindex, index);
  return writer.finish();
}

/** The body of an RTM_NEWNEIGH from the kernel; undefined for a family that is not IP (bridge). Throws a NetlinkDecodeError. */
export function parseNeighbour(body: Buffer): Neighbour | undefined {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("neighbour", `${body.length} bytes are too few`);
  const family = body.readUInt8(0);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const found = new Attributes(body.subarray(HEADER), "neighbour");
  const address = found.ip(NDA.dst);
  if (address === undefined) throw new NetlinkDecodeError("neighbour", "it has no address");
  return {
    index: body.readUInt32LE(4),
    address,
    mac: found.mac(NDA.lladdr),
    state: body.readUInt16LE(8),
    flags: body.readUInt8(10),
  };
}
