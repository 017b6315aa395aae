import {
  type Attributes,
  type AttributeWriter,
  formatMac,
  listAttributes,
  macToBytes,
  NetlinkDecodeError,
  present,
} from "./attributes.ts";
import type { VfInfo } from "./model.ts";

/**
 * Virtual functions of an SR-IOV device: IFLA_VFINFO_LIST, a list of IFLA_VF_INFO, each with fixed structs that begin with the VF's number
 * (linux/if_link.h, struct ifla_vf_*):
 *
 *   IFLA_VF_MAC          vf u32, mac u8[32]         IFLA_VF_VLAN       vf u32, vlan u32, qos u32
 *   IFLA_VF_TX_RATE      vf u32, max u32            IFLA_VF_RATE       vf u32, min u32, max u32
 *   IFLA_VF_SPOOFCHK     vf u32, on u32             IFLA_VF_TRUST      vf u32, on u32
 *   IFLA_VF_LINK_STATE   vf u32, state u32
 *   IFLA_VF_IB_NODE_GUID, IFLA_VF_IB_PORT_GUID   vf u32, padding u32, guid u64 (struct ifla_vf_guid)
 *   IFLA_VF_VLAN_LIST    nested IFLA_VF_VLAN_INFO   vf u32, vlan u32, qos u32, ethertype be16, padding
 */
const VF_INFO = 1;
const VF_MAC = 1;
const VF_VLAN = 2;
const VF_TX_RATE = 3;
const VF_SPOOFCHK = 4;
const VF_LINK_STATE = 5;
const VF_RATE = 6;
const VF_TRUST = 9;
const VF_VLAN_LIST = 12;
const VF_IB_NODE_GUID = 10;
const VF_IB_PORT_GUID = 11;
const VF_VLAN_INFO = 1;
const MAC_FIELD = 32;
const ETHERTYPE_VLAN = 0x8100;

/** A GUID is eight bytes as text with colons, as `ip link` takes it. `vlan` and `qos` go together (a missing one counts as 0); `minTxRate` alone sets no maximum. */
export type VfChange = Partial<Omit<VfInfo, "vf">>;

/** Writes the inside of IFLA_VFINFO_LIST for one VF. */
export function emitVfChange(writer: AttributeWriter, vf: number, change: VfChange): void {
  writer.fork(VF_INFO);
  if (change.mac !== undefined) {
    const field = Buffer.alloc(MAC_FIELD);
    macToBytes(change.mac).copy(field);
    writer.attribute(VF_MAC, Buffer.concat([u32s(vf), field]));
  }
  emitVlan(writer, vf, change);
  if (change.minTxRate !== undefined)
    writer.attribute(VF_RATE, u32s(vf, change.minTxRate, change.maxTxRate ?? 0));
  else if (change.maxTxRate !== undefined) writer.attribute(VF_TX_RATE, u32s(vf, change.maxTxRate));
  if (change.spoofCheck !== undefined)
    writer.attribute(VF_SPOOFCHK, u32s(vf, Number(change.spoofCheck)));
  if (change.linkState !== undefined) writer.attribute(VF_LINK_STATE, u32s(vf, change.linkState));
  if (change.trust !== undefined) writer.attribute(VF_TRUST, u32s(vf, Number(change.trust)));
  emitGuid(writer, VF_IB_NODE_GUID, { vf, guid: change.nodeGuid });
  emitGuid(writer, VF_IB_PORT_GUID, { vf, guid: change.portGuid });
  writer.join();
}

function emitVlan(writer: AttributeWriter, vf: number, change: VfChange): void {
  if (change.vlan === undefined && change.qos === undefined) return;
  const tag = u32s(vf, change.vlan ?? 0, change.qos ?? 0);
  const protocol = change.vlanProtocol ?? ETHERTYPE_VLAN;
  if (protocol === ETHERTYPE_VLAN) {
    writer.attribute(VF_VLAN, tag);
    return;
  }
  const ethertype = Buffer.of(protocol >>> 8, protocol & 0xff, 0, 0);
  writer
    .fork(VF_VLAN_LIST)
    .attribute(VF_VLAN_INFO, Buffer.concat([tag, ethertype]))
    .join();
}

function emitGuid(
  writer: AttributeWriter,
  type: number,
  { vf, guid }: { readonly vf: number; readonly guid: string | undefined },
): void {
  if (guid === undefined) return;
  const value = Buffer.alloc(8);
  value.writeBigUInt64LE(BigInt(`0x${guid.replaceAll(":", "")}`));
  writer.attribute(type, Buffer.concat([u32s(vf, 0), value]));
}

function parseGuid(vf: Attributes, type: number): string | undefined {
  const bytes = struct(vf, type, 16);
  if (bytes === undefined) return undefined;
  const digits = bytes.readBigUInt64LE(8).toString(16).padStart(16, "0");
  return digits.match(/../g)?.join(":");
}

function u32s(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [at, value] of values.entries()) bytes.writeUInt32LE(value >>> 0, at * 4);
  return bytes;
}

/** Reads IFLA_VFINFO_LIST. `macLength` is that of the device's own hardware address. Throws a NetlinkDecodeError. */
export function parseVfs(
  list: Buffer,
  macLength: number,
  parse: (bytes: Buffer) => Attributes,
): VfInfo[] {
  return listAttributes(list, "VF list")
    .filter(([type]) => type === VF_INFO)
    .map(([, bytes]) => parseVf(parse(bytes), macLength));
}

function parseVf(vf: Attributes, macLength: number): VfInfo {
  const mac = struct(vf, VF_MAC, 4 + macLength);
  if (mac === undefined)
    throw new NetlinkDecodeError("VF", "IFLA_VF_MAC, which has its number, is missing");
  // The list repeats the tag and adds its ethertype; drivers without it send the tag alone.
  const tag = vf.nested(VF_VLAN_LIST, "VF VLAN list");
  const tagged = tag === undefined ? undefined : struct(tag, VF_VLAN_INFO, 14);
  const vlan = tagged ?? struct(vf, VF_VLAN, 12);
  const rate = struct(vf, VF_RATE, 12);
  return {
    vf: mac.readUInt32LE(0),
    mac: formatMac(mac.subarray(4, 4 + macLength)),
    vlan: vlan?.readUInt32LE(4) ?? 0,
    qos: vlan?.readUInt32LE(8) ?? 0,
    vlanProtocol: tagged?.readUInt16BE(12) ?? ETHERTYPE_VLAN,
    spoofCheck: setting(vf, VF_SPOOFCHK) === 1,
    trust: setting(vf, VF_TRUST) === 1,
    linkState: setting(vf, VF_LINK_STATE),
    minTxRate: rate?.readUInt32LE(4) ?? 0,
    maxTxRate: rate?.readUInt32LE(8) ?? setting(vf, VF_TX_RATE),
    ...present({
      nodeGuid: parseGuid(vf, VF_IB_NODE_GUID),
      portGuid: parseGuid(vf, VF_IB_PORT_GUID),
    }),
  };
}

function setting(vf: Attributes, type: number): number {
  return struct(vf, type, 8)?.readUInt32LE(4) ?? 0;
}

function struct(attributes: Attributes, type: number, size: number): Buffer | undefined {
  const bytes = attributes.bytes(type);
  if (bytes !== undefined && bytes.length < size) {
    throw new NetlinkDecodeError("VF", `attribute ${type} has ${bytes.length} bytes, not ${size}`);
  }
  return bytes;
}
