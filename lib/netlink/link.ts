import {
  Attributes,
  AttributeWriter,
  listAttributes,
  NetlinkDecodeError,
  present,
  textOf,
} from "./attributes.ts";
import {
  emitBridgePort,
  emitLinkInfo,
  type PeerCodec,
  parseBridgePort,
  parseLinkInfo,
} from "./link-data.ts";
import { flagChange, iff } from "./link-flags.ts";
import { emitIpv6Mode } from "./link-inet6.ts";
import { emitVfChange, parseVfs, type VfChange } from "./link-vf.ts";
import { emitXdp, parseXdp } from "./link-xdp.ts";
import type { BridgePort, Link, LinkChange, LinkRef, LinkSpec, VethPeer } from "./model.ts";

/**
 * Link messages (RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK; linux/rtnetlink.h struct ifinfomsg, linux/if_link.h IFLA_*):
 *
 *   0        1     2      4       8       12             16
 *   | family | pad | type | index | flags | change mask  | attributes |
 */
const HEADER = 16;
const IFLA = {
  address: 1,
  ifname: 3,
  mtu: 4,
  link: 5,
  master: 10,
  protinfo: 12,
  txqlen: 13,
  operstate: 16,
  linkinfo: 18,
  ifalias: 20,
  vfinfoList: 22,
  afSpec: 26,
  group: 27,
  netNsFd: 28,
  extMask: 29,
  promiscuity: 30,
  numTxQueues: 31,
  numRxQueues: 32,
  linkNetnsid: 37,
  xdp: 43,
  newIfindex: 49,
  minMtu: 50,
  maxMtu: 51,
  propList: 52,
  altIfname: 53,
  permAddress: 54,
  parentDevName: 56,
  parentDevBusName: 57,
} as const;
const AF_BRIDGE = 7;
const RTEXT_FILTER_VF = 1;
const RTEXT_FILTER_SKIP_STATS = 8;
/** IFNAMSIZ - 1: a longer name can only be an alternative one. */
const LONGEST_NAME = 15;

interface Header {
  readonly family?: number;
  readonly index?: number;
  readonly flags?: number;
  readonly change?: number;
}

function emitHeader(writer: AttributeWriter, header: Header = {}): AttributeWriter {
  return writer
    .u8(header.family ?? 0)
    .u8(0)
    .u16(0)
    .u32(header.index ?? 0)
    .u32(header.flags ?? 0)
    .u32(header.change ?? 0);
}

const peers: PeerCodec = {
  emit(writer, peer) {
    emitHeader(writer).attributeText(IFLA.ifname, peer.name);
    if (peer.mtu !== undefined) writer.attributeU32(IFLA.mtu, peer.mtu);
    if (peer.mac !== undefined) writer.attributeMac(IFLA.address, peer.mac);
    if (peer.netnsFd !== undefined) writer.attributeU32(IFLA.netNsFd, peer.netnsFd);
  },
  parse(bytes): VethPeer {
    if (bytes.length < HEADER)
      throw new NetlinkDecodeError("veth peer", `${bytes.length} bytes are too few`);
    const found = new Attributes(bytes.subarray(HEADER), "veth peer");
    return {
      name: found.text(IFLA.ifname) ?? "",
      ...present({
        mtu: found.u32(IFLA.mtu),
        mac: found.mac(IFLA.address),
        netnsFd: found.u32(IFLA.netNsFd),
      }),
    };
  },
};

/** The body of the RTM_NEWLINK that creates a link. */
export function emitLinkSpec(spec: LinkSpec): Buffer {
  const up = spec.up === true ? iff.up : 0;
  const writer = emitHeader(new AttributeWriter(), {
    flags: up,
    change: up,
    ...(spec.index === undefined ? {} : { index: spec.index }),
  });
  writer.attributeText(IFLA.ifname, spec.name);
  emitCommon(writer, spec);
  emitNumbers(writer, [
    [IFLA.link, spec.link],
    [IFLA.linkNetnsid, spec.linkNetnsId],
    [IFLA.numTxQueues, spec.numTxQueues],
    [IFLA.numRxQueues, spec.numRxQueues],
  ]);
  writer.fork(IFLA.linkinfo);
  emitLinkInfo(writer, spec.data, peers);
  return writer.join().finish();
}

/** The body of the RTM_NEWLINK that changes a link which exists. */
export function emitLinkChange(index: number, change: LinkChange): Buffer {
  const { flags, mask } = flagChange(change);
  const writer = emitHeader(new AttributeWriter(), { index, flags, change: mask });
  if (change.name !== undefined) writer.attributeText(IFLA.ifname, change.name);
  emitCommon(writer, change);
  if (change.newIndex !== undefined) writer.attributeU32(IFLA.newIfindex, change.newIndex);
  if (change.xdp !== undefined) emitXdp(writer.fork(IFLA.xdp), change.xdp).join();
  if (change.ipv6AddressMode !== undefined) {
    emitIpv6Mode(writer.fork(IFLA.afSpec), change.ipv6AddressMode).join();
  }
  return writer.finish();
}

function emitCommon(writer: AttributeWriter, link: Omit<LinkChange, "name">): void {
  if (link.mac !== undefined) writer.attributeMac(IFLA.address, link.mac);
  emitNumbers(writer, [
    [IFLA.mtu, link.mtu],
    [IFLA.master, link.master],
    [IFLA.txqlen, link.txQueueLength],
    [IFLA.group, link.group],
    [IFLA.netNsFd, link.netnsFd],
  ]);
  if (link.alias !== undefined) writer.attribute(IFLA.ifalias, Buffer.from(link.alias));
}

function emitNumbers(
  writer: AttributeWriter,
  numbers: readonly (readonly [number, number | undefined])[],
): void {
  for (const [type, value] of numbers) if (value !== undefined) writer.attributeU32(type, value);
}

/** The body of a message that only names a link, such as RTM_DELLINK. Alternative names serve too. */
export function emitLinkRef(ref: LinkRef): Buffer {
  return emitRef(ref).finish();
}

/** The body of the RTM_GETLINK for one link: without its counters, which nobody reads, and with its VFs only when asked for. */
export function emitLinkQuery(ref: LinkRef, options: { vfs?: boolean } = {}): Buffer {
  // On hosts with many VFs their data holds RTNL for long, so nobody gets it unasked.
  const vfs = options.vfs === true ? RTEXT_FILTER_VF : 0;
  return emitRef(ref)
    .attributeU32(IFLA.extMask, RTEXT_FILTER_SKIP_STATS | vfs)
    .finish();
}

function emitRef(ref: LinkRef): AttributeWriter {
  const writer = emitHeader(new AttributeWriter(), "index" in ref ? { index: ref.index } : {});
  if (!("name" in ref)) return writer;
  const isLong = Buffer.byteLength(ref.name) > LONGEST_NAME;
  return writer.attributeText(isLong ? IFLA.altIfname : IFLA.ifname, ref.name);
}

/** The body of the RTM_DELLINK that deletes all links of a group at once. Group 0, which every link is in at first, is refused. */
export function emitGroupDelete(group: number): Buffer {
  if (group === 0) throw new RangeError("delete links by group: group 0 has every link");
  return emitHeader(new AttributeWriter()).attributeU32(IFLA.group, group).finish();
}

/**
 * The body of the RTM_GETLINK that dumps all links. Without their counters, which nobody reads: the fewer datagrams a dump takes, the
 * less often a change comes in between and it has to be begun again.
 */
export function emitLinkDump(): Buffer {
  return emitHeader(new AttributeWriter())
    .attributeU32(IFLA.extMask, RTEXT_FILTER_SKIP_STATS)
    .finish();
}

/** The body of the AF_BRIDGE RTM_SETLINK that changes a bridge port. */
export function emitPortChange(index: number, port: BridgePort): Buffer {
  const writer = emitHeader(new AttributeWriter(), { family: AF_BRIDGE, index }).fork(
    IFLA.protinfo,
  );
  emitBridgePort(writer, port);
  return writer.join().finish();
}

/** The body of the RTM_SETLINK that changes a VF of the device `index`. */
export function emitVf(index: number, vf: number, change: VfChange): Buffer {
  const writer = emitHeader(new AttributeWriter(), { index }).fork(IFLA.vfinfoList);
  emitVfChange(writer, vf, change);
  return writer.join().finish();
}

/** The body of RTM_NEWLINKPROP and RTM_DELLINKPROP for one alternative name. */
export function emitAltName(index: number, name: string): Buffer {
  const writer = emitHeader(new AttributeWriter(), { index });
  return writer.fork(IFLA.propList).attributeText(IFLA.altIfname, name).join().finish();
}

/** Which link a message is about, without reading its attributes. */
export function parseLinkIdentity(body: Buffer): {
  readonly family: number;
  readonly index: number;
} {
  requireHeader(body);
  return { family: body.readUInt8(0), index: body.readInt32LE(4) };
}

function requireHeader(body: Buffer): void {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("link", `${body.length} bytes are too few`);
}

/** The body of an RTM_NEWLINK (or RTM_DELLINK) from the kernel. Throws a NetlinkDecodeError. */
export function parseLink(body: Buffer): Link {
  requireHeader(body);
  const found = new Attributes(body.subarray(HEADER), "link");
  const flags = body.readUInt32LE(8);
  const info = parseLinkInfo(found.nested(IFLA.linkinfo, "link info"), peers);
  return {
    ...parseIdentity(body, found),
    ...info,
    bridgePort: info.bridgePort ?? parseProtinfo(body, found),
    mtu: found.u32(IFLA.mtu) ?? 0,
    minMtu: found.u32(IFLA.minMtu),
    maxMtu: found.u32(IFLA.maxMtu),
    txQueueLength: found.u32(IFLA.txqlen),
    numTxQueues: found.u32(IFLA.numTxQueues),
    numRxQueues: found.u32(IFLA.numRxQueues),
    flags,
    up: (flags & iff.up) !== 0,
    allmulti: (flags & iff.allmulti) !== 0,
    operState: found.u8(IFLA.operstate),
    promiscuity: found.u32(IFLA.promiscuity),
    master: found.u32(IFLA.master),
    link: found.u32(IFLA.link),
    linkNetnsId: found.i32(IFLA.linkNetnsid),
    group: found.u32(IFLA.group) ?? 0,
    vfs: parseVfList(found),
    xdp: parseXdp(found.nested(IFLA.xdp, "XDP")),
    parentDevName: found.text(IFLA.parentDevName),
    parentDevBusName: found.text(IFLA.parentDevBusName),
  };
}

function parseIdentity(body: Buffer, found: Attributes) {
  return {
    index: body.readInt32LE(4),
    name: found.text(IFLA.ifname) ?? "",
    altNames: parseAltNames(found.bytes(IFLA.propList)),
    mac: found.mac(IFLA.address),
    permanentMac: found.mac(IFLA.permAddress),
    alias: found.text(IFLA.ifalias),
  };
}

function parseAltNames(list: Buffer | undefined): string[] {
  if (list === undefined) return [];
  return listAttributes(list, "link properties")
    .filter(([type]) => type === IFLA.altIfname)
    .map(([, bytes]) => textOf(bytes));
}

function parseProtinfo(body: Buffer, found: Attributes): BridgePort | undefined {
  const port =
    body.readUInt8(0) === AF_BRIDGE ? found.nested(IFLA.protinfo, "bridge port") : undefined;
  return port === undefined ? undefined : parseBridgePort(port);
}

function parseVfList(found: Attributes) {
  const list = found.bytes(IFLA.vfinfoList);
  if (list === undefined) return undefined;
  return parseVfs(
    list,
    found.bytes(IFLA.address)?.length ?? 6,
    (bytes) => new Attributes(bytes, "VF"),
  );
}
