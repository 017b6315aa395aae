import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import {
  emitBridgeVlan,
  emitBridgeVlanDump,
  parseBridgeVlans,
} from "../../../lib/netlink/bridge-vlan.ts";
import { parseLink } from "../../../lib/netlink/link.ts";
import { dump, hex, hexFixture } from "../../helpers/hex.ts";

test("parseBridgeVlans, a port and a bridge as the kernel sent them, gives ranges and flags", () => {
  assert.deepEqual(parseBridgeVlans(hexFixture("netlink/bridge-vlan-port.hex")), {
    index: 4,
    vlans: [
      { id: 1, untagged: true },
      { id: 10, pvid: true, untagged: true },
      { id: 100, endId: 110 },
    ],
  });
  assert.deepEqual(parseBridgeVlans(hexFixture("netlink/bridge-vlan-bridge.hex")), {
    index: 2,
    vlans: [{ id: 1, pvid: true, untagged: true }],
  });
});

test("parseLink, an AF_BRIDGE message, gives the port from IFLA_PROTINFO", () => {
  const port = { hairpin: true, learning: true, unicastFlood: true, isolated: true };
  assert.deepEqual(parseLink(hexFixture("netlink/bridge-vlan-port.hex")).bridgePort, port);
});

test("emitBridgeVlan, one VLAN and a range, parse to themselves", () => {
  const one = { id: 10, pvid: true, untagged: true };
  const bytes = emitBridgeVlan(4, one, { self: true });
  assert.deepEqual(
    dump(bytes),
    dump(
      hex(
        "07 00 0000 04000000 00000000 00000000",
        "1400 1a80",
        "0600 0000 0200 0000",
        "0800 0200 0600 0a00",
      ),
    ),
  );
  assert.deepEqual(parseBridgeVlans(bytes), { index: 4, vlans: [one] });
  const range = { id: 100, endId: 110 };
  assert.deepEqual(
    dump(emitBridgeVlan(4, range).subarray(16)),
    dump(hex("1400 1a80", "0800 0200 0800 6400", "0800 0200 1000 6e00")),
  );
  assert.deepEqual(parseBridgeVlans(emitBridgeVlan(4, range)).vlans, [range]);
  assert.deepEqual(
    dump(emitBridgeVlanDump()),
    dump(hex("07 00 0000 00000000 00000000 00000000", "0800 1d00 04000000")),
  );
});

test("parseBridgeVlans, malformed bytes, throws a NetlinkDecodeError", () => {
  assert.throws(() => parseBridgeVlans(hex("0700")), NetlinkDecodeError);
  assert.throws(
    () =>
      parseBridgeVlans(
        hex("07 00 0000 04000000 00000000 00000000", "0a00 1a80 0600 0200 0600 0000"),
      ),
    NetlinkDecodeError,
  );
});
