import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import * as codec from "../../../lib/netlink/link.ts";
import { dump, hex, hexFixture } from "../../helpers/hex.ts";

const read = (name: string) => codec.parseLink(hexFixture(`netlink/link-${name}.hex`));

test("parseLink, a bridge as the kernel sent it, gives its fields and data", () => {
  const link = read("br0");
  assert.deepEqual(
    [link.index, link.name, link.kind, link.up, link.mtu, link.master],
    [2, "br0", "bridge", true, 1500, undefined],
  );
  assert.deepEqual(link.data, {
    kind: "bridge",
    stpState: 0,
    vlanFiltering: true,
    mcastSnooping: false,
    vlanDefaultPvid: 1,
  });
});

test("parseLink, a veth that is a bridge port, gives master, peer and port", () => {
  const link = read("v0");
  assert.deepEqual(
    [link.name, link.kind, link.mac, link.master, link.link],
    ["v0", "veth", "02:00:00:00:00:01", 2, 3],
  );
  assert.deepEqual(link.bridgePort, {
    hairpin: true,
    learning: true,
    unicastFlood: true,
    isolated: true,
  });
  assert.equal(link.numTxQueues, 1);
});

test("parseLink, names and limits, gives alias, alternative names and MTU bounds", () => {
  const link = read("e0");
  assert.deepEqual(link.altNames, ["a-long-alternative-name", "short"]);
  assert.deepEqual([link.alias, link.mtu, link.minMtu, link.maxMtu], ["uplink", 1400, 68, 65535]);
  assert.deepEqual(
    [link.txQueueLength, link.operState, link.group, link.promiscuity],
    [1000, 6, 0, 0],
  );
  assert.equal(link.bridgePort, undefined);
});

test("parseLink, links on lower ones, gives kind data and the lower index", () => {
  assert.deepEqual(read("mv0").data, { kind: "macvlan", mode: 1, flags: 0, bcQueueLength: 500 });
  assert.equal(read("mv0").link, 3);
  assert.deepEqual(read("vl0").data, { kind: "vlan", id: 5, protocol: 0x88a8 });
  assert.deepEqual(read("iv0").data, { kind: "ipvlan", mode: 2, flags: 1 });
  assert.deepEqual(read("vrf0").data, { kind: "vrf", table: 1000 });
  assert.deepEqual(read("d0").data, { kind: "dummy" });
});

test("parseLink, the loopback, has no kind, no data and a zero hardware address", () => {
  const link = read("lo");
  assert.deepEqual(
    [link.name, link.index, link.kind, link.data, link.mac],
    ["lo", 1, undefined, undefined, "00:00:00:00:00:00"],
  );
});

test("parseLink, a kind without a model, keeps the name of the kind", () => {
  const body = hex(
    "0000 0100 07000000 00000000 00000000",
    "1800 1280",
    "0a00 0100 7678 6c616e 00 0000",
    "0800 0280 0400 0100",
  );
  const link = codec.parseLink(body);
  assert.deepEqual([link.index, link.kind, link.data], [7, "vxlan", undefined]);
});

test("parseLink, malformed bytes, throws a NetlinkDecodeError", () => {
  assert.throws(() => codec.parseLink(hex("00000000")), NetlinkDecodeError);
  assert.throws(
    () => codec.parseLink(hex("0000 0100 07000000 00000000 00000000", "0600 0400 0000 0000")),
    NetlinkDecodeError,
  );
  assert.throws(() => codec.parseLinkIdentity(hex("00")), NetlinkDecodeError);
});

test("emitLinkSpec, a veth with its peer in another namespace, is one message", () => {
  const bytes = codec.emitLinkSpec({
    name: "v0",
    mtu: 1400,
    master: 2,
    up: true,
    data: {
      kind: "veth",
      peer: { name: "eth0", mac: "02:00:00:00:00:05", mtu: 1400, netnsFd: 21 },
    },
  });
  const expected = hex(
    "00 00 0000 00000000 01000000 01000000", // ifinfomsg: IFF_UP in flags and change
    "0700 0300 763000 00", // IFLA_IFNAME
    "0800 0400 78050000", // IFLA_MTU
    "0800 0a00 02000000", // IFLA_MASTER
    "5000 1280", // IFLA_LINKINFO
    "0900 0100 7665746800 000000", // IFLA_INFO_KIND
    "4000 0280", // IFLA_INFO_DATA
    "3c00 0180", // VETH_INFO_PEER
    "00 00 0000 00000000 00000000 00000000", // the peer's ifinfomsg: never IFF_UP
    "0900 0300 6574683000 000000",
    "0800 0400 78050000",
    "0a00 0100 020000000005 0000",
    "0800 1c00 15000000", // IFLA_NET_NS_FD
  );
  assert.deepEqual(dump(bytes), dump(expected));
  assert.deepEqual(codec.parseLink(bytes).data, {
    kind: "veth",
    peer: { name: "eth0", mac: "02:00:00:00:00:05", mtu: 1400, netnsFd: 21 },
  });
});

test("emitLinkSpec, kinds on a lower link, write IFLA_LINK and their data", () => {
  const kindOf = (spec: Parameters<typeof codec.emitLinkSpec>[0]) =>
    dump(codec.emitLinkSpec(spec).subarray(16));
  assert.deepEqual(
    kindOf({
      name: "m0",
      link: 3,
      netnsFd: 9,
      data: { kind: "macvlan", mode: 4, bcQueueLength: 500 },
    }),
    dump(
      hex(
        "0700 0300 6d3000 00",
        "0800 1c00 09000000", // IFLA_NET_NS_FD
        "0800 0500 03000000", // IFLA_LINK
        "2400 1280",
        "0c00 0100 6d6163766c616e00",
        "1400 0280",
        "0800 0100 04000000", // IFLA_MACVLAN_MODE: bridge
        "0800 0700 f4010000", // IFLA_MACVLAN_BC_QUEUE_LEN
      ),
    ),
  );
  assert.deepEqual(
    kindOf({ name: "l0", link: 3, data: { kind: "vlan", id: 5, protocol: 0x88a8 } }),
    dump(
      hex(
        "0700 0300 6c3000 00",
        "0800 0500 03000000",
        "2400 1280",
        "0900 0100 766c616e00 000000",
        "1400 0280",
        "0600 0100 0500 0000", // IFLA_VLAN_ID
        "0600 0500 88a8 0000", // IFLA_VLAN_PROTOCOL, network byte order
      ),
    ),
  );
});

test("emitLinkChange, absent keys, leave out their attributes and flags", () => {
  assert.deepEqual(
    dump(codec.emitLinkChange(7, { up: false })),
    dump(hex("00 00 0000 07000000 00000000 01000000")),
  );
  assert.deepEqual(
    dump(
      codec.emitLinkChange(7, {
        name: "net1",
        mac: "02:00:00:00:00:09",
        promisc: true,
        allmulti: false,
        master: 0,
        txQueueLength: 5,
        group: 3,
        alias: "a",
        netnsFd: 8,
        mtu: 1300,
      }),
    ),
    dump(
      hex(
        "00 00 0000 07000000 00010000 00030000", // IFF_PROMISC on, IFF_ALLMULTI off
        "0900 0300 6e65743100 000000",
        "0a00 0100 020000000009 0000",
        "0800 0400 14050000",
        "0800 0a00 00000000", // IFLA_MASTER 0: none
        "0800 0d00 05000000", // IFLA_TXQLEN
        "0800 1b00 03000000", // IFLA_GROUP
        "0800 1c00 08000000",
        "0500 1400 61 000000", // IFLA_IFALIAS, no zero byte
      ),
    ),
  );
});

test("emitLinkChange, IPv6 address mode, goes into the attributes of that family", () => {
  assert.deepEqual(
    dump(codec.emitLinkChange(7, { ipv6AddressMode: "none" })),
    dump(
      hex(
        "00 00 0000 07000000 00000000 00000000",
        "1000 1a80", // IFLA_AF_SPEC
        "0c00 0a80", // AF_INET6
        "0500 0800 01 000000", // IFLA_INET6_ADDR_GEN_MODE
      ),
    ),
  );
});

test("emitLinkRef, short, long and indexed, names the link by the fitting attribute", () => {
  assert.deepEqual(
    dump(codec.emitLinkRef({ name: "eth0" }).subarray(16)),
    dump(hex("0900 0300 6574683000 000000")),
  );
  assert.deepEqual(
    dump(codec.emitLinkRef({ name: "a-name-of-16-xyz" }).subarray(16, 20)),
    dump(hex("1500 3500")),
  ); // IFLA_ALT_IFNAME
  assert.deepEqual(
    dump(codec.emitLinkRef({ index: 9 })),
    dump(hex("00 00 0000 09000000 00000000 00000000")),
  );
});

test("emitLinkQuery asks for no counters, and for VFs only where they are wanted", () => {
  const header = "00 00 0000 09000000 00000000 00000000";
  assert.deepEqual(
    dump(codec.emitLinkQuery({ index: 9 })),
    dump(hex(header, "0800 1d00 08000000")), // IFLA_EXT_MASK: SKIP_STATS
  );
  assert.deepEqual(
    dump(codec.emitLinkQuery({ index: 9 }, { vfs: true })),
    dump(hex(header, "0800 1d00 09000000")), // and VF
  );
});

test("emitLinkDump asks for no counters", () => {
  assert.deepEqual(
    dump(codec.emitLinkDump()),
    dump(hex("00 00 0000 00000000 00000000 00000000", "0800 1d00 08000000")), // IFLA_EXT_MASK: SKIP_STATS
  );
});

test("emitGroupDelete, group 0, is refused: it has every link", () => {
  assert.throws(() => codec.emitGroupDelete(0), RangeError);
  assert.deepEqual(dump(codec.emitGroupDelete(5).subarray(16)), dump(hex("0800 1b00 05000000")));
});

test("emitPortChange, flags of a port, are nested in IFLA_PROTINFO of AF_BRIDGE", () => {
  assert.deepEqual(
    dump(
      codec.emitPortChange(4, {
        hairpin: true,
        isolated: false,
        learning: true,
        unicastFlood: false,
      }),
    ),
    dump(
      hex(
        "07 00 0000 04000000 00000000 00000000",
        "2400 0c80",
        "0500 0400 01 000000",
        "0500 0800 01 000000",
        "0500 0900 00 000000",
        "0500 2100 00 000000",
      ),
    ),
  );
});

test("emitAltName, a name, is nested in IFLA_PROP_LIST", () => {
  assert.deepEqual(
    dump(codec.emitAltName(4, "x").subarray(16)),
    dump(hex("0c00 3480", "0600 3500 7800 0000")),
  );
});

test("emitVf and parseLink, a VF's settings, are each other's inverse", () => {
  const vf = {
    vf: 3,
    mac: "02:00:00:00:00:07",
    vlan: 5,
    qos: 2,
    vlanProtocol: 0x88a8,
    spoofCheck: true,
    trust: false,
    linkState: 1,
    minTxRate: 10,
    maxTxRate: 100,
    nodeGuid: "11:22:33:44:55:66:77:88",
    portGuid: "02:00:00:00:00:00:00:01",
  };
  const { vf: number, ...change } = vf;
  const bytes = codec.emitVf(6, number, change);
  assert.deepEqual(
    dump(bytes),
    dump(
      hex(
        "00 00 0000 06000000 00000000 00000000",
        "a400 1680", // IFLA_VFINFO_LIST
        "a000 0180", // IFLA_VF_INFO
        "2800 0100 03000000 020000000007 0000000000000000000000000000000000000000000000000000", // IFLA_VF_MAC
        "1800 0c80", // IFLA_VF_VLAN_LIST
        "1400 0100 03000000 05000000 02000000 88a8 0000",
        "1000 0600 03000000 0a000000 64000000", // IFLA_VF_RATE: min, max
        "0c00 0400 03000000 01000000", // IFLA_VF_SPOOFCHK
        "0c00 0500 03000000 01000000", // IFLA_VF_LINK_STATE
        "0c00 0900 03000000 00000000", // IFLA_VF_TRUST
        // What 'ip link set DEV vf 3 node_guid 11:22:33:44:55:66:77:88' sends.
        "1400 0a00 03000000 00000000 8877665544332211", // IFLA_VF_IB_NODE_GUID
        "1400 0b00 03000000 00000000 0100000000000002", // IFLA_VF_IB_PORT_GUID
      ),
    ),
  );
  const [parsed] = codec.parseLink(bytes).vfs ?? [];
  assert.deepEqual(parsed, vf);
});

test("emitVf, an 802.1Q VLAN or only a maximum rate, takes the older attributes", () => {
  assert.deepEqual(
    dump(codec.emitVf(6, 1, { vlan: 9 }).subarray(24)),
    dump(hex("1000 0200 01000000 09000000 00000000")),
  );
  assert.deepEqual(
    dump(codec.emitVf(6, 1, { maxTxRate: 7 }).subarray(24)),
    dump(hex("0c00 0300 01000000 07000000")),
  );
});
