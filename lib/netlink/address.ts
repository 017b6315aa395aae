import { bitsOf, formatIp, parseCidr } from "../base/ip.ts";
import { Attributes, AttributeWriter, NetlinkDecodeError, present } from "./attributes.ts";
import type { Address, AddressSpec } from "./model.ts";

/**
 * Address messages (RTM_NEWADDR and friends; linux/if_addr.h struct ifaddrmsg):
 *
 *   0        1            2       3       4       8
 *   | family | prefix len | flags | scope | index | attributes |
 *
 * IFA_LOCAL is the interface's own address, IFA_ADDRESS the prefix' (the peer's on a point-to-point link, else the same). IFA_FLAGS
 * has all flags where the header has room for eight.
 */
const HEADER = 8;
const IFA = { address: 1, local: 2, label: 3, broadcast: 4, flags: 8 } as const;
export const AF_INET = 2;
export const AF_INET6 = 10;

/** The body of RTM_NEWADDR and RTM_DELADDR. Throws an IpError. */
export function emitAddress(spec: AddressSpec): Buffer {
  const cidr = parseCidr(spec.address);
  const address = formatIp(cidr);
  const writer = new AttributeWriter()
    .u8(cidr.family === 4 ? AF_INET : AF_INET6)
    .u8(cidr.prefixLength)
    .u8((spec.flags ?? 0) & 0xff)
    .u8(spec.scope ?? 0)
    .u32(spec.index)
    .attributeIp(IFA.local, address)
    .attributeIp(IFA.address, spec.peer ?? address);
  if (spec.broadcast !== undefined) writer.attributeIp(IFA.broadcast, spec.broadcast);
  if (spec.label !== undefined) writer.attributeText(IFA.label, spec.label);
  if (spec.flags !== undefined) writer.attributeU32(IFA.flags, spec.flags);
  return writer.finish();
}

/** The body of the RTM_GETADDR dump; 0 is every link. */
export function emitAddressDump(index: number): Buffer {
  return new AttributeWriter().u32(0).u32(index).finish();
}

/** The body of an RTM_NEWADDR from the kernel; undefined for a family that is not IP. Throws a NetlinkDecodeError. */
export function parseAddress(body: Buffer): Address | undefined {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("address", `${body.length} bytes are too few`);
  const family = body.readUInt8(0);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const found = new Attributes(body.subarray(HEADER), "address");
  const prefixAddress = found.ip(IFA.address);
  const local = found.ip(IFA.local) ?? prefixAddress;
  const prefixLength = body.readUInt8(1);
  if (local === undefined || prefixLength > bitsOf(family === AF_INET ? 4 : 6)) {
    throw new NetlinkDecodeError("address", "no address, or an impossible prefix length");
  }
  return {
    index: body.readUInt32LE(4),
    address: `${local}/${prefixLength}`,
    ...present({
      peer: prefixAddress === local ? undefined : prefixAddress,
      broadcast: found.ip(IFA.broadcast),
      label: found.text(IFA.label),
    }),
    scope: body.readUInt8(3),
    flags: found.u32(IFA.flags) ?? body.readUInt8(2),
  };
}
