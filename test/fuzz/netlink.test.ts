import assert from "node:assert/strict";
import fc from "fast-check";
import { formatCidr, formatIp, ipFromBytes, networkOf, withPrefix } from "../../lib/base/ip.ts";
import { emitAddress, parseAddress } from "../../lib/netlink/address.ts";
import {
  Attributes,
  AttributeWriter,
  formatMac,
  listAttributes,
  NetlinkDecodeError,
} from "../../lib/netlink/attributes.ts";
import { emitBridgeVlan, parseBridgeVlans } from "../../lib/netlink/bridge-vlan.ts";
import { emitLinkSpec, emitVf, parseLink, parseLinkIdentity } from "../../lib/netlink/link.ts";
import { emitMessage, parseAcknowledgement, parseMessages } from "../../lib/netlink/message.ts";
import type { LinkData, LinkSpec } from "../../lib/netlink/model.ts";
import { emitNeighbour, parseNeighbour } from "../../lib/netlink/neighbour.ts";
import { emitRoute, parseRoutes } from "../../lib/netlink/route.ts";
import { emitRule, parseRule } from "../../lib/netlink/rule.ts";
import { fuzz } from "../helpers/fuzz.ts";
import { hexFixture } from "../helpers/hex.ts";

const u8 = fc.integer({ min: 0, max: 0xff });
const u16 = fc.integer({ min: 0, max: 0xffff });
const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const index = fc.integer({ min: 1, max: 0x7fff_ffff });
const bytesOf = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const mac = bytesOf(6).map(formatMac);
const name = fc.stringMatching(/^[a-z][a-z0-9.-]{0,14}$/);
const ip4 = bytesOf(4).map((bytes) => formatIp(ipFromBytes(bytes)));
const ip6 = bytesOf(16).map((bytes) => formatIp(ipFromBytes(bytes)));
const cidrOf = (length: 4 | 16) =>
  fc
    .tuple(bytesOf(length), fc.integer({ min: 0, max: length * 8 }))
    .map(([bytes, prefix]) => withPrefix(ipFromBytes(bytes), prefix));
const cidr = fc.oneof(cidrOf(4), cidrOf(16));
const networkText = (length: 4 | 16) => cidrOf(length).map((one) => formatCidr(networkOf(one)));
/** Keys that are sometimes absent, as the model has them. */
const some = { requiredKeys: [] as never[], noNullPrototype: true };

/** As fc.record, every key there. */
function record<T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> {
  return fc.record<T>(model, { noNullPrototype: true });
}

const linkData: fc.Arbitrary<LinkData> = fc.oneof(
  fc
    .record(
      {
        vlanFiltering: fc.boolean(),
        vlanDefaultPvid: u16,
        stpState: u32,
        mcastSnooping: fc.boolean(),
      },
      some,
    )
    .map((data) => ({ kind: "bridge" as const, ...data })),
  fc
    .record(
      { name, mac, mtu: u32, netnsFd: u16 },
      { requiredKeys: ["name"], noNullPrototype: true },
    )
    .map((peer) => ({ kind: "veth" as const, peer })),
  fc
    .record({ mode: u32, flags: u16, bcQueueLength: u32 }, some)
    .map((data) => ({ kind: "macvlan" as const, ...data })),
  fc.record({ mode: u16, flags: u16 }, some).map((data) => ({ kind: "ipvlan" as const, ...data })),
  fc.record({ id: u16, protocol: u16 }, some).map((data) => ({ kind: "vlan" as const, ...data })),
  fc.record({ table: u32 }, some).map((data) => ({ kind: "vrf" as const, ...data })),
  fc.constantFrom({ kind: "dummy" as const }, { kind: "ifb" as const }, { kind: "veth" as const }),
);

fuzz(
  "a link that is emitted parses to itself",
  fc.property(
    fc.record(
      {
        name,
        data: linkData,
        mac,
        mtu: u32,
        up: fc.boolean(),
        master: index,
        link: index,
        linkNetnsId: index,
        group: u32,
        txQueueLength: u32,
        alias: name,
        numTxQueues: u32,
        numRxQueues: u32,
      },
      { requiredKeys: ["name", "data"], noNullPrototype: true },
    ),
    (spec: LinkSpec) => {
      const link = parseLink(emitLinkSpec(spec));
      assert.deepEqual(link.data, spec.data);
      assert.equal(link.kind, spec.data.kind);
      assert.equal(link.up, spec.up ?? false);
      const { data, up, ...same } = spec;
      for (const [key, value] of Object.entries(same))
        assert.equal(link[key as keyof typeof link], value, key);
    },
  ),
);

fuzz(
  "an address that is emitted parses to itself",
  fc.property(
    cidr,
    fc.record(
      { index, scope: u8, flags: u32, label: name },
      { requiredKeys: ["index", "scope", "flags"], noNullPrototype: true },
    ),
    (address, rest) => {
      const spec = { ...rest, address: formatCidr(address) };
      assert.deepEqual(parseAddress(emitAddress(spec)), spec);
    },
  ),
);

const routeKeys = {
  index,
  table: u32.filter((table) => table > 0),
  priority: u32,
  scope: u8,
  protocol: u8,
  type: u8,
  mtu: u32,
  advmss: u32,
};
fuzz(
  "a route that is emitted parses to itself",
  fc.property(
    fc.oneof(
      record({
        destination: networkText(4),
        gateway: fc.oneof(ip4, ip6),
        source: ip4,
        ...routeKeys,
      }),
      record({ destination: networkText(16), gateway: ip6, source: ip6, ...routeKeys }),
    ),
    fc.boolean(),
    (spec, onlink) => {
      const [route, ...others] = parseRoutes(emitRoute({ ...spec, onlink }));
      assert.deepEqual(others, []);
      assert.deepEqual(route, {
        ...spec,
        family: spec.destination.includes(":") ? 6 : 4,
        flags: onlink ? 4 : 0,
      });
    },
  ),
);

fuzz(
  "a rule that is emitted parses to itself",
  fc.property(
    fc.oneof(
      record({
        family: fc.constant(4 as const),
        source: networkText(4),
        destination: networkText(4),
      }),
      record({
        family: fc.constant(6 as const),
        source: networkText(16),
        destination: networkText(16),
      }),
    ),
    record({ table: u32, priority: u32, iifName: name, oifName: name, mark: u32 }),
    (prefixes, rest) => {
      const spec = { ...prefixes, ...rest };
      const rule = parseRule(emitRule(spec));
      const unlessAll = (text: string) => (text.endsWith("/0") ? undefined : text);
      assert.deepEqual(rule, {
        ...spec,
        source: unlessAll(spec.source),
        destination: unlessAll(spec.destination),
      });
    },
  ),
);

fuzz(
  "a neighbour that is emitted parses to itself",
  fc.property(
    record({ index, address: fc.oneof(ip4, ip6), mac, state: u16, flags: u8 }),
    (neighbour) => {
      assert.deepEqual(parseNeighbour(emitNeighbour(neighbour)), neighbour);
    },
  ),
);

fuzz(
  "a bridge VLAN that is emitted parses to itself",
  fc.property(
    index,
    fc.tuple(u16, u16),
    fc.subarray(["pvid", "untagged"] as const),
    (port, [id, endId], flags) => {
      const vlan = {
        id,
        ...(endId !== id && { endId }),
        ...Object.fromEntries(flags.map((flag) => [flag, true])),
      };
      assert.deepEqual(parseBridgeVlans(emitBridgeVlan(port, vlan)), {
        index: port,
        vlans: [vlan],
      });
    },
  ),
);

fuzz(
  "a VF that is emitted parses to itself",
  fc.property(
    record({
      vf: u16,
      mac,
      vlan: u16,
      qos: u8,
      vlanProtocol: fc.constantFrom(0x8100, 0x88a8),
      spoofCheck: fc.boolean(),
      trust: fc.boolean(),
      linkState: u8,
      minTxRate: u32,
      maxTxRate: u32,
    }),
    (info) => {
      const { vf, ...change } = info;
      assert.deepEqual(parseLink(emitVf(1, vf, change)).vfs, [info]);
    },
  ),
);

fuzz(
  "attributes that are written are read, in order and with every byte",
  fc.property(
    fc.array(fc.tuple(fc.integer({ min: 0, max: 0x3fff }), fc.uint8Array({ maxLength: 300 }))),
    (list) => {
      const writer = new AttributeWriter();
      for (const [type, payload] of list) writer.attribute(type, payload);
      const read = listAttributes(writer.finish(), "test").map(([type, value]) => [
        type,
        [...value],
      ]);
      assert.deepEqual(
        read,
        list.map(([type, payload]) => [type, [...payload]]),
      );
    },
  ),
);

fuzz(
  "messages that are emitted one after the other are parsed, with every byte",
  fc.property(fc.array(fc.tuple(u16, u16, u32, fc.uint8Array({ maxLength: 100 }))), (list) => {
    const datagram = Buffer.concat(
      list.map(([type, flags, sequence, body]) => emitMessage({ type, flags, body }, sequence)),
    );
    const expected = list.map(([type, flags, sequence, body]) => ({
      type,
      flags: flags | 1,
      sequence,
      body: Buffer.from(body),
    }));
    assert.deepEqual(parseMessages(datagram), expected);
  }),
);

const parsers: readonly ((bytes: Buffer) => unknown)[] = [
  (bytes) => parseMessages(bytes).map(parseAcknowledgement),
  (bytes) => parseAcknowledgement({ type: 2, flags: 0x200, sequence: 0, body: bytes }),
  (bytes) => parseAcknowledgement({ type: 3, flags: 0x200, sequence: 0, body: bytes }),
  (bytes) => new Attributes(bytes, "any").types(),
  parseLink,
  parseLinkIdentity,
  parseAddress,
  parseRoutes,
  parseRule,
  parseNeighbour,
  parseBridgeVlans,
];

function valueOrDecodeError(bytes: Buffer): void {
  for (const parse of parsers) {
    try {
      parse(bytes);
    } catch (error) {
      if (!(error instanceof NetlinkDecodeError)) throw error;
    }
  }
}

fuzz(
  "any bytes give values or NetlinkDecodeErrors",
  fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => valueOrDecodeError(Buffer.from(bytes))),
);

const real = ["link-br0", "link-v0", "link-e0", "link-vl0", "link-iv0", "bridge-vlan-port"].map(
  (fixture) => hexFixture(`netlink/${fixture}.hex`),
);
const generated = [
  emitVf(1, 2, {
    mac: "02:00:00:00:00:01",
    vlan: 3,
    vlanProtocol: 0x88a8,
    minTxRate: 1,
    trust: true,
  }),
  emitRoute({ destination: "10.0.0.0/8", gateway: "fd00::1", mtu: 5, table: 1000 }),
  emitAddress({ index: 1, address: "fd00::1/64", flags: 2 }),
  emitRule({ family: 4, table: 1000, source: "10.0.0.0/8", iifName: "eth0" }),
];
fuzz(
  "real messages with some bytes changed, or cut, give values or NetlinkDecodeErrors",
  fc.property(
    fc.constantFrom(...real, ...generated),
    fc.array(fc.tuple(fc.nat(), u8), { maxLength: 8 }),
    fc.nat(),
    (message, changes, cut) => {
      const bytes = Buffer.from(message);
      for (const [at, value] of changes) bytes[at % bytes.length] = value;
      valueOrDecodeError(bytes.subarray(0, cut % 4 === 0 ? cut % bytes.length : bytes.length));
    },
  ),
);
