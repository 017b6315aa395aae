import { close } from "node:fs";
import { ipToBytes, parseIp } from "../../../lib/base/ip.ts";
import * as libc from "../../../lib/base/libc.ts";
import type { Netns } from "../../../lib/base/netns.ts";
import type { Link } from "../../../lib/netlink/model.ts";

/** Ethertypes of linux/if_ether.h. */
export const ETH_ARP = 0x0806;
export const ETH_IPV6 = 0x86dd;

const NEIGHBOUR_SOLICITATION = 135;
const NEIGHBOUR_ADVERTISEMENT = 136;
const SOURCE_LINK_ADDRESS = 1;
const TARGET_LINK_ADDRESS = 2;
const OVERRIDE = 0x20000000;
const ICMPV6 = 58;

export type Mac = Uint8Array;

/** Six bytes from text; undefined for other kinds of hardware address (InfiniBand has twenty). */
export function macBytes(text: string | undefined): Mac | undefined {
  const bytes = Buffer.from((text ?? "").replaceAll(":", ""), "hex");
  return bytes.length === 6 ? bytes : undefined;
}

export function macText(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex").match(/../g)?.join(":") ?? "";
}

/** An ARP request (RFC 826) with the same address as sender and target: a gratuitous announcement (RFC 5227, 3). */
export function gratuitousArp(mac: Mac, address: string): Buffer {
  const ip = ipToBytes(parseIp(address));
  // Ethernet, IPv4, 6 and 4 bytes long, request.
  const header = Buffer.from([0, 1, 8, 0, 6, 4, 0, 1]);
  return Buffer.concat([header, mac, ip, Buffer.alloc(6), ip]);
}

/** An unsolicited neighbour advertisement (RFC 4861, 7.2.6) to all nodes. */
export function unsolicitedAdvertisement(mac: Mac, address: string): Buffer {
  const source = ipToBytes(parseIp(address));
  const target = ipToBytes(parseIp("ff02::1"));
  return neighbourMessage(NEIGHBOUR_ADVERTISEMENT, {
    source,
    target,
    about: source,
    flags: OVERRIDE,
    option: Buffer.concat([Buffer.of(TARGET_LINK_ADDRESS, 1), mac]),
  });
}

/** The neighbour solicitation of duplicate address detection (RFC 4862, 5.4.2): who has the address answers to all nodes. */
export function duplicateProbe(address: string): Buffer {
  const about = ipToBytes(parseIp(address));
  return neighbourMessage(NEIGHBOUR_SOLICITATION, {
    source: Buffer.alloc(16),
    target: solicitedNode(about),
    about,
    flags: 0,
    option: Buffer.alloc(0),
  });
}

/** ff02::1:ffXX:XXXX, the last three bytes from the address. */
export function solicitedNode(address: Uint8Array): Buffer {
  const group = ipToBytes(parseIp("ff02::1:ff00:0"));
  group.set(address.subarray(13), 13);
  return group;
}

/** 33:33 and the last four bytes (RFC 2464, 7). */
export function multicastMac(group: Uint8Array): Buffer {
  return Buffer.concat([Buffer.of(0x33, 0x33), group.subarray(12)]);
}

interface NeighbourMessage {
  readonly source: Buffer;
  readonly target: Buffer;
  readonly about: Buffer;
  readonly flags: number;
  readonly option: Buffer;
}

function neighbourMessage(type: number, message: NeighbourMessage): Buffer {
  const icmp = Buffer.concat([Buffer.alloc(8), message.about, message.option]);
  icmp.writeUInt8(type, 0);
  icmp.writeUInt32BE(message.flags, 4);
  const pseudo = Buffer.alloc(8);
  pseudo.writeUInt32BE(icmp.length, 0);
  pseudo.writeUInt8(ICMPV6, 7);
  const sum = internetChecksum(Buffer.concat([message.source, message.target, pseudo, icmp]));
  icmp.writeUInt16BE(sum, 2);
  const header = Buffer.alloc(8);
  header.writeUInt8(0x60, 0);
  header.writeUInt16BE(icmp.length, 4);
  header.writeUInt8(ICMPV6, 6);
  // Neighbour discovery is only believed with a hop limit that no router lowered.
  header.writeUInt8(255, 7);
  return Buffer.concat([header, message.source, message.target, icmp]);
}

/** RFC 1071. `bytes` has an even length. */
function internetChecksum(bytes: Buffer): number {
  let sum = 0;
  for (let offset = 0; offset < bytes.length; offset += 2) sum += bytes.readUInt16BE(offset);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/** The hardware address that an IPv6 packet (a neighbour advertisement about `address`) names; undefined for any other packet. */
export function advertisedMac(packet: Buffer, address: string): string | undefined {
  const wanted = ipToBytes(parseIp(address));
  if (packet.length < 72 || packet.readUInt8(6) !== ICMPV6) return undefined;
  if (packet.readUInt8(40) !== NEIGHBOUR_ADVERTISEMENT) return undefined;
  if (!packet.subarray(48, 64).equals(wanted)) return undefined;
  const kind = packet.readUInt8(64);
  if (kind !== TARGET_LINK_ADDRESS && kind !== SOURCE_LINK_ADDRESS) return undefined;
  return macText(packet.subarray(66, 72));
}

/** struct sockaddr_ll of linux/if_packet.h. */
export function packetAddress(link: Link, ethertype: number, to: Mac): Buffer {
  const address = Buffer.alloc(20);
  address.writeUInt16LE(libc.AF_PACKET, 0);
  address.writeUInt16BE(ethertype, 2);
  address.writeInt32LE(link.index, 4);
  address.writeUInt8(to.length, 11);
  address.set(to, 12);
  return address;
}

/** A socket that only sends, with `packetAddress` saying where. The caller closes it by `closePacketSocket`. Throws a SystemError. */
export function openSendSocket(netns: Netns): number {
  // Of no protocol, so that the kernel never gives it a packet: hooking it up, and off again, is what costs time.
  return netns.run(() => libc.socket(libc.AF_PACKET, libc.SOCK_DGRAM | libc.SOCK_NONBLOCK, 0));
}

/**
 * A socket that sends and receives packets of one ethertype on one link, headers of the link excluded. The caller closes it by `closePacketSocket`. Throws a
 * SystemError.
 */
export function openPacketSocket(netns: Netns, link: Link, ethertype: number): number {
  const fd = openSendSocket(netns);
  try {
    libc.bindSocket(fd, packetAddress(link, ethertype, new Uint8Array(6)));
    return fd;
  } catch (error) {
    libc.closeFd(fd);
    throw error;
  }
}

/**
 * Closes a socket of `openPacketSocket`, on a pool thread: the kernel waits for all processors to leave the socket alone (packet_release, some 20 ms), for which
 * neither the event loop nor the attachment has to wait.
 */
export function closePacketSocket(fd: number): void {
  close(fd, () => undefined);
}
