import { Attributes, AttributeWriter, listAttributes, NetlinkDecodeError } from "./attributes.ts";
import type { BridgeVlan } from "./model.ts";

/**
 * VLANs of bridge ports: AF_BRIDGE link messages (linux/rtnetlink.h struct ifinfomsg: family u8, pad u8, type u16, index u32,
 * flags u32, change u32) whose IFLA_AF_SPEC has (linux/if_bridge.h)
 *
 *   IFLA_BRIDGE_FLAGS      u16: 1 the master, 2 the bridge itself
 *   IFLA_BRIDGE_VLAN_INFO  flags u16, id u16; repeated; a range is two: RANGE_BEGIN, RANGE_END
 */
const HEADER = 16;
const AF_BRIDGE = 7;
const AF_SPEC = 26;
const EXT_MASK = 29;
const RTEXT_FILTER_BRVLAN_COMPRESSED = 4;
const BRIDGE_FLAGS = 0;
const BRIDGE_VLAN_INFO = 2;
const BRIDGE_FLAGS_SELF = 2;
const VLAN = { pvid: 2, untagged: 4, rangeBegin: 8, rangeEnd: 16 } as const;

/** `self`: the VLANs of the bridge device itself, not of a port. */
export interface BridgeVlanOptions {
  readonly self?: boolean;
}

/** The body of the RTM_SETLINK that adds and of the RTM_DELLINK that deletes a VLAN or a range. */
export function emitBridgeVlan(
  index: number,
  vlan: BridgeVlan,
  options: BridgeVlanOptions = {},
): Buffer {
  const writer = new AttributeWriter()
    .u8(AF_BRIDGE)
    .u8(0)
    .u16(0)
    .u32(index)
    .u32(0)
    .u32(0)
    .fork(AF_SPEC);
  if (options.self === true) writer.attributeU16(BRIDGE_FLAGS, BRIDGE_FLAGS_SELF);
  const flags = (vlan.pvid === true ? VLAN.pvid : 0) | (vlan.untagged === true ? VLAN.untagged : 0);
  if (vlan.endId === undefined || vlan.endId === vlan.id) {
    writer.attribute(BRIDGE_VLAN_INFO, vlanInfo(flags, vlan.id));
  } else {
    writer.attribute(BRIDGE_VLAN_INFO, vlanInfo(flags | VLAN.rangeBegin, vlan.id));
    writer.attribute(BRIDGE_VLAN_INFO, vlanInfo(flags | VLAN.rangeEnd, vlan.endId));
  }
  return writer.join().finish();
}

function vlanInfo(flags: number, id: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt16LE(flags, 0);
  bytes.writeUInt16LE(id, 2);
  return bytes;
}

/** The body of the AF_BRIDGE RTM_GETLINK dump with VLANs. The kernel can't filter it by link. */
export function emitBridgeVlanDump(): Buffer {
  return new AttributeWriter()
    .u8(AF_BRIDGE)
    .u8(0)
    .u16(0)
    .u32(0)
    .u32(0)
    .u32(0)
    .attributeU32(EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED)
    .finish();
}

/** The VLANs in an AF_BRIDGE RTM_NEWLINK from the kernel, and the link that they are of. Throws a NetlinkDecodeError. */
export function parseBridgeVlans(body: Buffer): {
  readonly index: number;
  readonly vlans: BridgeVlan[];
} {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("bridge VLANs", `${body.length} bytes are too few`);
  const spec = new Attributes(body.subarray(HEADER), "bridge link").bytes(AF_SPEC);
  return { index: body.readUInt32LE(4), vlans: spec === undefined ? [] : parseVlanList(spec) };
}

function parseVlanList(spec: Buffer): BridgeVlan[] {
  const vlans: BridgeVlan[] = [];
  let begin: number | undefined;
  for (const [type, bytes] of listAttributes(spec, "bridge VLANs")) {
    if (type !== BRIDGE_VLAN_INFO) continue;
    if (bytes.length < 4)
      throw new NetlinkDecodeError("bridge VLANs", `an entry has ${bytes.length} bytes`);
    const flags = bytes.readUInt16LE(0);
    const id = bytes.readUInt16LE(2);
    if ((flags & VLAN.rangeBegin) !== 0) {
      begin = id;
      continue;
    }
    const range =
      begin !== undefined && (flags & VLAN.rangeEnd) !== 0 ? { id: begin, endId: id } : { id };
    begin = undefined;
    vlans.push({
      ...range,
      ...((flags & VLAN.pvid) !== 0 && { pvid: true }),
      ...((flags & VLAN.untagged) !== 0 && { untagged: true }),
    });
  }
  return vlans;
}
