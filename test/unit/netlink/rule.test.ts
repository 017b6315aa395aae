import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import { emitRule, emitRuleDump, parseRule } from "../../../lib/netlink/rule.ts";
import { dump, hex } from "../../helpers/hex.ts";

const captured = hex(
  "02 10 08 00 fc 0000 01 00000000", // AF_INET, to /16, from /8, table in FRA_TABLE, action: look up
  "0800 0f00 e8030000", // FRA_TABLE 1000
  "0800 0e00 ffffffff", // FRA_SUPPRESS_PREFIXLEN
  "0500 1500 00 000000", // FRA_PROTOCOL
  "0700 0300 653000 00", // FRA_IIFNAME
  "0800 0600 4d000000", // FRA_PRIORITY
  "0800 0a00 05000000", // FRA_FWMARK
  "0800 1000 ffffffff", // FRA_FWMASK
  "0800 0100 0a010000", // FRA_DST
  "0800 0200 0a000000", // FRA_SRC
);
const rule = {
  family: 4,
  priority: 77,
  table: 1000,
  source: "10.0.0.0/8",
  destination: "10.1.0.0/16",
  iifName: "e0",
  oifName: undefined,
  mark: 5,
} as const;

test("parseRule, a rule as the kernel sent it, gives its fields", () => {
  assert.deepEqual(parseRule(captured), rule);
});

test("parseRule, the first rule of every namespace, selects nothing", () => {
  const body = hex(
    "02 00 00 00 ff 0000 01 00000000",
    "0800 0f00 ff000000",
    "0800 0e00 ffffffff",
    "0500 1500 02 000000",
  );
  const none = {
    source: undefined,
    destination: undefined,
    iifName: undefined,
    oifName: undefined,
    mark: undefined,
  };
  assert.deepEqual(parseRule(body), { ...none, family: 4, priority: undefined, table: 255 });
});

test("emitRule, a rule with everything, parses to itself", () => {
  const { oifName: _, ...spec } = rule;
  assert.deepEqual(
    dump(emitRule({ ...spec, source: "10.1.1.1/8" })),
    dump(
      hex(
        "02 10 08 00 00 0000 01 00000000",
        "0800 0100 0a010000",
        "0800 0200 0a000000",
        "0700 0300 653000 00",
        "0800 0600 4d000000",
        "0800 0a00 05000000",
        "0800 0f00 e8030000",
      ),
    ),
  );
  assert.deepEqual(parseRule(emitRule(spec)), rule);
});

test("emitRule, a prefix of everything, selects nothing", () => {
  assert.deepEqual(
    dump(emitRule({ family: 6, table: 5, source: "::/0" })),
    dump(hex("0a 00 00 00 05 0000 01 00000000")),
  );
  assert.deepEqual(dump(emitRuleDump(6)), dump(hex("0a 00 0000 00000000 00000000")));
});

test("parseRule, what is no IP rule, is undefined or a NetlinkDecodeError", () => {
  assert.equal(parseRule(hex("80 00 00 00 fe 0000 01 00000000")), undefined);
  assert.throws(() => parseRule(hex("0200")), NetlinkDecodeError);
  assert.throws(
    () => parseRule(hex("02 10 00 00 fe 0000 01 00000000", "0600 0100 0a01 0000")),
    NetlinkDecodeError,
  );
});
