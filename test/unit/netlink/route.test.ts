import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import {
  emitRoute,
  emitRouteDump,
  emitRouteMatch,
  emitRouteQuery,
  parseRoutes,
} from "../../../lib/netlink/route.ts";
import { dump, hex } from "../../helpers/hex.ts";

const nothing = {
  gateway: undefined,
  index: undefined,
  priority: undefined,
  source: undefined,
  mtu: undefined,
  advmss: undefined,
};

test("parseRoutes, a route with everything as the kernel sent it, gives its fields", () => {
  const body = hex(
    "02 10 00 00 fc 03 00 01 00000000", // AF_INET, /16, table 252: see RTA_TABLE, boot, universe, unicast
    "0800 0f00 e8030000", // RTA_TABLE 1000
    "0800 0100 0a010000", // RTA_DST
    "0800 0600 07000000", // RTA_PRIORITY
    "1400 0800 0800 0200 14050000 0800 0800 b0040000", // RTA_METRICS: mtu 1300, advmss 1200
    "0800 0700 0a000005", // RTA_PREFSRC
    "0800 0500 0a000001", // RTA_GATEWAY
    "0800 0400 03000000", // RTA_OIF
  );
  assert.deepEqual(parseRoutes(body), [
    {
      family: 4,
      destination: "10.1.0.0/16",
      gateway: "10.0.0.1",
      index: 3,
      table: 1000,
      priority: 7,
      scope: 0,
      protocol: 3,
      type: 1,
      source: "10.0.0.5",
      mtu: 1300,
      advmss: 1200,
      flags: 0,
    },
  ]);
});

test("parseRoutes, several next hops, gives a route for each", () => {
  const body = hex(
    "02 10 00 00 fe 03 00 01 00000000",
    "0800 0f00 fe000000",
    "0800 0100 0a020000",
    "2400 0900", // RTA_MULTIPATH
    "1000 00 00 03000000 0800 0500 0a000001",
    "1000 04 00 03000000 0800 0500 0a000002", // RTNH_F_ONLINK
  );
  const common = {
    ...nothing,
    family: 4,
    destination: "10.2.0.0/16",
    index: 3,
    table: 254,
    scope: 0,
    protocol: 3,
    type: 1,
  };
  assert.deepEqual(parseRoutes(body), [
    { ...common, gateway: "10.0.0.1", flags: 0 },
    { ...common, gateway: "10.0.0.2", flags: 4 },
  ]);
});

test("parseRoutes, an IPv4 route by an IPv6 gateway, gives the gateway of RTA_VIA", () => {
  const body = hex(
    "02 10 00 00 fe 03 00 01 00000000",
    "0800 0f00 fe000000",
    "0800 0100 0a030000",
    "1600 1200 0a00 fd000000000000000000000000000001 0000", // RTA_VIA
    "0800 0400 03000000",
  );
  assert.equal(parseRoutes(body)[0]?.gateway, "fd00::1");
});

test("parseRoutes, an IPv6 default route, has its destination without RTA_DST", () => {
  const [route] = parseRoutes(
    hex(
      "0a 00 00 00 fe 02 00 01 00000000",
      "0800 0f00 fe000000",
      "0800 0600 00010000",
      "0800 0400 03000000",
    ),
  );
  assert.deepEqual([route?.destination, route?.family, route?.priority], ["::/0", 6, 256]);
});

test("parseRoutes, what is no IP route, is nothing or a NetlinkDecodeError", () => {
  assert.deepEqual(parseRoutes(hex("80 20 00 00 fe 02 00 01 00000000")), []);
  const bad = [
    "02100000",
    "02 21 00 00 fe 03 00 01 00000000",
    "02 10 00 00 fe 03 00 01 00000000 1400 0100 fd000000000000000000000000000001",
    "02 10 00 00 fe 03 00 01 00000000 0c00 0900 0700 00 00 03000000",
    "02 10 00 00 fe 03 00 01 00000000 0800 1200 0a00 fd00",
  ];
  for (const text of bad) assert.throws(() => parseRoutes(hex(text)), NetlinkDecodeError, text);
});

test("emitRoute, everything, writes header, attributes and nested metrics", () => {
  assert.deepEqual(
    dump(
      emitRoute({
        destination: "10.1.2.3/16",
        gateway: "10.0.0.1",
        index: 3,
        table: 1000,
        priority: 7,
        scope: 0,
        protocol: 4,
        type: 1,
        source: "10.0.0.5",
        mtu: 1300,
        advmss: 1200,
        onlink: true,
      }),
    ),
    dump(
      hex(
        "02 10 00 00 00 04 00 01 04000000", // the table is in RTA_TABLE, RTNH_F_ONLINK
        "0800 0100 0a010000", // host bits cleared
        "0800 0f00 e8030000",
        "0800 0500 0a000001",
        "0800 0400 03000000",
        "0800 0600 07000000",
        "0800 0700 0a000005",
        "1400 0880 0800 0200 14050000 0800 0800 b0040000",
      ),
    ),
  );
});

test("emitRoute, nothing but a destination, takes the defaults of ip route", () => {
  const header = (spec: Parameters<typeof emitRoute>[0]) =>
    emitRoute(spec).subarray(0, 12).toString("hex");
  assert.equal(header({ destination: "10.0.0.0/8", index: 3 }), "02080000fe03fd0100000000"); // scope link
  assert.equal(
    header({ destination: "10.0.0.0/8", gateway: "10.0.0.1" }),
    "02080000fe03000100000000",
  );
  assert.equal(header({ destination: "10.0.0.0/8", type: 7 }), "02080000fe03000700000000"); // unreachable
  assert.equal(header({ destination: "::/0", index: 3 }), "0a000000fe03000100000000");
});

test("emitRoute, a gateway of the other family, writes RTA_VIA", () => {
  const [route] = parseRoutes(
    emitRoute({ destination: "10.0.0.0/8", gateway: "fd00::1", index: 3 }),
  );
  assert.equal(route?.gateway, "fd00::1");
});

test("emitRouteMatch, absent keys, match anything", () => {
  assert.deepEqual(
    dump(emitRouteMatch({ destination: "0.0.0.0/0" })),
    dump(hex("02 00 00 00 fe 00 ff 00 00000000")),
  );
});

test("emitRouteDump and emitRouteQuery, filters and address, are where strict checking looks", () => {
  assert.deepEqual(
    dump(emitRouteDump(6, { table: 254, index: 3 })),
    dump(hex("0a 00 0000 00 00 00 00 00000000", "0800 0f00 fe000000", "0800 0400 03000000")),
  );
  assert.deepEqual(
    dump(emitRouteQuery("10.0.0.1")),
    dump(hex("02 20 0000 00 00 00 00 00000000", "0800 0100 0a000001")),
  );
});
