import { Address4, Address6 } from "ip-address";

/**
 * IP addresses as numbers: arithmetic for ranges, bytes for the kernel, canonical text for people.
 * Text is parsed by the `ip-address` package: no leading zeros, no zones, no missing octets.
 */

export type IpFamily = 4 | 6;

/** One address. `value` is the address as an unsigned integer of 32 or 128 bits. */
export interface Ip {
  readonly family: IpFamily;
  readonly value: bigint;
}

/** An address with a prefix length. The host bits are kept: `10.0.0.5/24` is not `10.0.0.0/24`. */
export interface Cidr extends Ip {
  readonly prefixLength: number;
}

/** A text or a computation that gives no IP address. */
export class IpError extends Error {
  override readonly name = "IpError";
}

/** 32 or 128. */
export function bitsOf(family: IpFamily): number {
  return family === 4 ? 32 : 128;
}

/** The highest address of a family as a number. */
function highest(family: IpFamily): bigint {
  return (1n << BigInt(bitsOf(family))) - 1n;
}

/**
 * Parses an address. An IPv4-mapped address (`::ffff:10.0.0.1`) stays IPv6.
 * Throws an IpError that quotes the text.
 */
export function parseIp(text: string): Ip {
  if (text.includes("/") || text.includes("%"))
    throw new IpError(`parse "${text}": not an IP address`);
  try {
    return text.includes(":")
      ? { family: 6, value: new Address6(text).bigInt() }
      : { family: 4, value: new Address4(text).bigInt() };
  } catch (error) {
    throw new IpError(`parse "${text}": not an IP address`, { cause: error });
  }
}

/** Parses `ADDRESS/LENGTH` and keeps the host bits. Throws an IpError that quotes the text. */
export function parseCidr(text: string): Cidr {
  const slash = text.indexOf("/");
  if (slash < 0)
    throw new IpError(`parse "${text}": not in CIDR form, the prefix length is missing`);
  const ip = parseIp(text.slice(0, slash));
  const digits = text.slice(slash + 1);
  if (!/^(0|[1-9]\d{0,2})$/.test(digits) || Number(digits) > bitsOf(ip.family)) {
    throw new IpError(`parse "${text}": the prefix length must be 0 to ${bitsOf(ip.family)}`);
  }
  return { ...ip, prefixLength: Number(digits) };
}

/** Whether the text is an address (without a prefix length). */
export function isIp(text: string): boolean {
  return succeeds(() => parseIp(text));
}

/** Whether the text is an address with a prefix length. */
export function isCidr(text: string): boolean {
  return succeeds(() => parseCidr(text));
}

function succeeds(work: () => unknown): boolean {
  try {
    work();
    return true;
  } catch (error) {
    if (error instanceof IpError) return false;
    throw error;
  }
}

/** Canonical text: RFC 5952, IPv4-mapped addresses with the dotted end. */
export function formatIp(ip: Ip): string {
  if (ip.family === 4) return formatIpv4(ip.value);
  if (ip.value >> 32n === 0xffffn) return `::ffff:${formatIpv4(ip.value & 0xffffffffn)}`;
  return Address6.fromBigInt(ip.value).correctForm();
}

function formatIpv4(value: bigint): string {
  const number = Number(value);
  return `${number >>> 24}.${(number >>> 16) & 255}.${(number >>> 8) & 255}.${number & 255}`;
}

/** Canonical text of an address with its prefix length, host bits kept. */
export function formatCidr(cidr: Cidr): string {
  return `${formatIp(cidr)}/${cidr.prefixLength}`;
}

/** Gives an address an own prefix length. Throws an IpError when it does not fit the family. */
export function withPrefix(ip: Ip, prefixLength: number): Cidr {
  if (!Number.isInteger(prefixLength) || prefixLength < 0 || prefixLength > bitsOf(ip.family)) {
    throw new IpError(
      `prefix length ${prefixLength} of ${formatIp(ip)}: must be 0 to ${bitsOf(ip.family)}`,
    );
  }
  return { family: ip.family, value: ip.value, prefixLength };
}

/** The address in network byte order: 4 or 16 bytes. */
export function ipToBytes(ip: Ip): Buffer {
  return Buffer.from(ip.value.toString(16).padStart(bitsOf(ip.family) / 4, "0"), "hex");
}

/** An address from its 4 or 16 bytes in network byte order. Throws an IpError for another length. */
export function ipFromBytes(bytes: Uint8Array): Ip {
  if (bytes.length !== 4 && bytes.length !== 16) {
    throw new IpError(`read an IP address: ${bytes.length} bytes, not 4 or 16`);
  }
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return { family: bytes.length === 4 ? 4 : 6, value };
}

/** The network mask of a prefix as an address: `255.255.255.0` for an IPv4 /24. */
export function maskOf(cidr: Cidr): Ip {
  const hostBits = BigInt(bitsOf(cidr.family) - cidr.prefixLength);
  return { family: cidr.family, value: (highest(cidr.family) >> hostBits) << hostBits };
}

/** The prefix without host bits: `10.0.0.0/24` for `10.0.0.5/24`. */
export function networkOf(cidr: Cidr): Cidr {
  return { ...cidr, value: cidr.value & maskOf(cidr).value };
}

/** The lowest address of the prefix (of an IPv4 network: the network address). */
export function firstIp(cidr: Cidr): Ip {
  return { family: cidr.family, value: networkOf(cidr).value };
}

/** The highest address of the prefix (of an IPv4 network: the broadcast address). */
export function lastIp(cidr: Cidr): Ip {
  const hostMask = highest(cidr.family) ^ maskOf(cidr).value;
  return { family: cidr.family, value: cidr.value | hostMask };
}

/** Whether the address lies in the prefix. False for another family. */
export function contains(cidr: Cidr, ip: Ip): boolean {
  if (cidr.family !== ip.family) return false;
  return (ip.value & maskOf(cidr).value) === networkOf(cidr).value;
}

/** Whether two prefixes share an address. False for different families. */
export function overlaps(left: Cidr, right: Cidr): boolean {
  return left.prefixLength <= right.prefixLength ? contains(left, right) : contains(right, left);
}

/** The address `distance` further (or before, when negative). Throws an IpError outside the family. */
export function offsetIp(ip: Ip, distance: bigint | number): Ip {
  const value = ip.value + BigInt(distance);
  if (value < 0n || value > highest(ip.family)) {
    throw new IpError(`address ${distance} away from ${formatIp(ip)}: outside IPv${ip.family}`);
  }
  return { family: ip.family, value };
}

/** Negative, 0 or positive, for sorting: IPv4 before IPv6, then by number. */
export function compareIp(left: Ip, right: Ip): number {
  if (left.family !== right.family) return left.family - right.family;
  if (left.value === right.value) return 0;
  return left.value < right.value ? -1 : 1;
}

/** Canonical text of an address given as text, for comparing. Throws an IpError. */
export function canonicalIp(text: string): string {
  return formatIp(parseIp(text));
}

/** Canonical text of an address with prefix length given as text, for comparing. Throws an IpError. */
export function canonicalCidr(text: string): string {
  return formatCidr(parseCidr(text));
}
