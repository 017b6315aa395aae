import type { Attributes, AttributeWriter } from "./attributes.ts";
import { present } from "./attributes.ts";
import type { BridgeData, BridgePort, LinkData, MacvlanData, VethData, VethPeer } from "./model.ts";

/**
 * What a link's kind adds to it: IFLA_LINKINFO (linux/if_link.h), nested:
 *
 *   IFLA_INFO_KIND        text, not always zero-terminated
 *   IFLA_INFO_DATA        nested, its attributes belong to the kind
 *   IFLA_INFO_SLAVE_KIND  text: the kind of the master
 *   IFLA_INFO_SLAVE_DATA  nested: IFLA_BRPORT_* under a bridge
 */
const INFO_KIND = 1;
const INFO_DATA = 2;
const INFO_SLAVE_KIND = 4;
const INFO_SLAVE_DATA = 5;

const BR_STP_STATE = 5;
const BR_VLAN_FILTERING = 7;
const BR_MCAST_SNOOPING = 23;
const BR_VLAN_DEFAULT_PVID = 39;
const MACVLAN_MODE = 1;
const MACVLAN_FLAGS = 2;
const MACVLAN_BC_QUEUE_LEN = 7;
const IPVLAN_MODE = 1;
const IPVLAN_FLAGS = 2;
const VLAN_ID = 1;
const VLAN_PROTOCOL = 5;
const VRF_TABLE = 1;
const TUN_OWNER = 1;
const TUN_GROUP = 2;
const TUN_MULTI_QUEUE = 7;
const VETH_PEER = 1;
const BRPORT_MODE = 4;
const BRPORT_LEARNING = 8;
const BRPORT_UNICAST_FLOOD = 9;
const BRPORT_ISOLATED = 33;

/** The veth peer is a whole link message in itself, so link.ts brings its codec. */
export interface PeerCodec {
  emit(writer: AttributeWriter, peer: VethPeer): void;
  parse(bytes: Buffer): VethPeer;
}

/** Writes the inside of IFLA_LINKINFO. */
export function emitLinkInfo(writer: AttributeWriter, data: LinkData, peers: PeerCodec): void {
  writer.attributeText(INFO_KIND, data.kind).fork(INFO_DATA);
  emitKind(writer, data, peers);
  writer.join();
}

function emitKind(writer: AttributeWriter, data: LinkData, peers: PeerCodec): void {
  switch (data.kind) {
    case "bridge":
      emitBridge(writer, data);
      return;
    case "veth":
      emitVeth(writer, data, peers);
      return;
    case "macvlan":
    case "macvtap":
      emitMacvlan(writer, data);
      return;
    case "ipvlan":
      emitNumber16(writer, IPVLAN_MODE, data.mode);
      emitNumber16(writer, IPVLAN_FLAGS, data.flags);
      return;
    case "vlan":
      emitNumber16(writer, VLAN_ID, data.id);
      if (data.protocol !== undefined) writer.attributeU16BigEndian(VLAN_PROTOCOL, data.protocol);
      return;
    case "vrf":
      if (data.table !== undefined) writer.attributeU32(VRF_TABLE, data.table);
      return;
    case "tun":
    case "dummy":
    case "ifb":
      return;
  }
}

function emitNumber16(writer: AttributeWriter, type: number, value: number | undefined): void {
  if (value !== undefined) writer.attributeU16(type, value);
}

function emitVeth(writer: AttributeWriter, data: VethData, peers: PeerCodec): void {
  if (data.peer === undefined) return;
  writer.fork(VETH_PEER);
  peers.emit(writer, data.peer);
  writer.join();
}

function emitBridge(writer: AttributeWriter, data: BridgeData): void {
  if (data.stpState !== undefined) writer.attributeU32(BR_STP_STATE, data.stpState);
  if (data.vlanFiltering !== undefined)
    writer.attributeU8(BR_VLAN_FILTERING, Number(data.vlanFiltering));
  if (data.mcastSnooping !== undefined)
    writer.attributeU8(BR_MCAST_SNOOPING, Number(data.mcastSnooping));
  if (data.vlanDefaultPvid !== undefined)
    writer.attributeU16(BR_VLAN_DEFAULT_PVID, data.vlanDefaultPvid);
}

function emitMacvlan(writer: AttributeWriter, data: MacvlanData): void {
  if (data.mode !== undefined) writer.attributeU32(MACVLAN_MODE, data.mode);
  if (data.flags !== undefined) writer.attributeU16(MACVLAN_FLAGS, data.flags);
  if (data.bcQueueLength !== undefined)
    writer.attributeU32(MACVLAN_BC_QUEUE_LEN, data.bcQueueLength);
}

/** What IFLA_LINKINFO says. A kind that has no model keeps its name and has no data. */
export interface LinkInfo {
  readonly kind: string | undefined;
  readonly data: LinkData | undefined;
  readonly bridgePort: BridgePort | undefined;
}

export function parseLinkInfo(info: Attributes | undefined, peers: PeerCodec): LinkInfo {
  if (info === undefined) return { kind: undefined, data: undefined, bridgePort: undefined };
  const kind = info.text(INFO_KIND);
  const isPort = info.text(INFO_SLAVE_KIND) === "bridge";
  const port = isPort ? info.nested(INFO_SLAVE_DATA, "bridge port") : undefined;
  return {
    kind,
    data:
      kind === undefined
        ? undefined
        : parseKind(kind, info.nested(INFO_DATA, `link data of ${kind}`), peers),
    bridgePort: port === undefined ? undefined : parseBridgePort(port),
  };
}

function parseKind(
  kind: string,
  data: Attributes | undefined,
  peers: PeerCodec,
): LinkData | undefined {
  switch (kind) {
    case "bridge":
      return { kind, ...present(parseBridge(data)) };
    case "veth": {
      const peer = data?.bytes(VETH_PEER);
      return peer === undefined ? { kind } : { kind, peer: peers.parse(peer) };
    }
    case "macvlan":
    case "macvtap":
      return {
        kind,
        ...present({
          mode: data?.u32(MACVLAN_MODE),
          flags: data?.u16(MACVLAN_FLAGS),
          bcQueueLength: data?.u32(MACVLAN_BC_QUEUE_LEN),
        }),
      };
    case "ipvlan":
      return { kind, ...present({ mode: data?.u16(IPVLAN_MODE), flags: data?.u16(IPVLAN_FLAGS) }) };
    case "vlan":
      return {
        kind,
        ...present({ id: data?.u16(VLAN_ID), protocol: data?.u16BigEndian(VLAN_PROTOCOL) }),
      };
    case "vrf":
      return { kind, ...present({ table: data?.u32(VRF_TABLE) }) };
    case "tun":
      return {
        kind,
        ...present({
          owner: data?.u32(TUN_OWNER),
          group: data?.u32(TUN_GROUP),
          multiQueue: truth(data?.u8(TUN_MULTI_QUEUE)),
        }),
      };
    case "dummy":
    case "ifb":
      return { kind };
    default:
      return undefined;
  }
}

function parseBridge(data: Attributes | undefined) {
  return {
    stpState: data?.u32(BR_STP_STATE),
    vlanFiltering: truth(data?.u8(BR_VLAN_FILTERING)),
    mcastSnooping: truth(data?.u8(BR_MCAST_SNOOPING)),
    vlanDefaultPvid: data?.u16(BR_VLAN_DEFAULT_PVID),
  };
}

/** Writes IFLA_BRPORT_* attributes: inside IFLA_PROTINFO of an AF_BRIDGE message. */
export function emitBridgePort(writer: AttributeWriter, port: BridgePort): void {
  if (port.hairpin !== undefined) writer.attributeU8(BRPORT_MODE, Number(port.hairpin));
  if (port.learning !== undefined) writer.attributeU8(BRPORT_LEARNING, Number(port.learning));
  if (port.unicastFlood !== undefined)
    writer.attributeU8(BRPORT_UNICAST_FLOOD, Number(port.unicastFlood));
  if (port.isolated !== undefined) writer.attributeU8(BRPORT_ISOLATED, Number(port.isolated));
}

export function parseBridgePort(attributes: Attributes): BridgePort {
  return present({
    hairpin: truth(attributes.u8(BRPORT_MODE)),
    learning: truth(attributes.u8(BRPORT_LEARNING)),
    unicastFlood: truth(attributes.u8(BRPORT_UNICAST_FLOOD)),
    isolated: truth(attributes.u8(BRPORT_ISOLATED)),
  });
}

function truth(value: number | undefined): boolean | undefined {
  return value === undefined ? undefined : value !== 0;
}
