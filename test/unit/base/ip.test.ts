import assert from "node:assert/strict";
import { test } from "node:test";
import * as ip from "../../../lib/base/ip.ts";

test("parseIp and formatIp, canonical and other spellings, give canonical text", () => {
  const cases: readonly (readonly [string, string])[] = [
    ["10.0.0.1", "10.0.0.1"],
    ["255.255.255.255", "255.255.255.255"],
    ["FD00:0:0:1::0:A", "fd00:0:0:1::a"],
    ["::", "::"],
    ["0:0:1:0:0:0:1:0", "0:0:1::1:0"],
    ["1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"],
    ["::ffff:10.0.0.1", "::ffff:10.0.0.1"],
    ["::ffff:a00:1", "::ffff:10.0.0.1"],
  ];
  for (const [text, expected] of cases) assert.equal(ip.canonicalIp(text), expected, text);
});

test("parseIp, no address, throws an IpError that quotes the text", () => {
  const bad = [
    "",
    "1.2.3",
    "010.0.0.1",
    "10.0.0.256",
    " 10.0.0.1",
    "10.0.0.1/24",
    "0x0a.0.0.1",
    "fe80::1%eth0",
    "1::2::3",
    "12345::",
    "1:2:3:4:5:6:7",
    "::10.0.0.256",
    "nonsense",
    "10.0.0.1\n",
  ];
  for (const text of bad) {
    assert.throws(
      () => ip.parseIp(text),
      (error) => error instanceof ip.IpError && error.message.includes(text),
    );
    assert.equal(ip.isIp(text), false, text);
  }
});

test("parseCidr, wrong prefix lengths, are refused", () => {
  const bad = [
    "10.0.0.1",
    "10.0.0.1/",
    "10.0.0.1/33",
    "10.0.0.1/024",
    "10.0.0.1/-1",
    "fd00::/129",
    "fd00::/64/3",
    "10.0.0.0/2 4",
  ];
  for (const text of bad) assert.throws(() => ip.parseCidr(text), ip.IpError, text);
  assert.equal(ip.isCidr("10.0.0.0/0"), true);
});

test("parseCidr, host bits, keeps them", () => {
  assert.equal(ip.canonicalCidr("10.0.0.5/24"), "10.0.0.5/24");
  assert.equal(ip.formatCidr(ip.networkOf(ip.parseCidr("10.0.0.5/24"))), "10.0.0.0/24");
  assert.equal(ip.formatCidr(ip.networkOf(ip.parseCidr("fd00::5:1/112"))), "fd00::5:0/112");
  assert.equal(ip.formatCidr(ip.networkOf(ip.parseCidr("10.1.2.3/0"))), "0.0.0.0/0");
});

test("firstIp, lastIp and maskOf, both families and edge lengths, give the bounds", () => {
  const bounds = (text: string) => {
    const cidr = ip.parseCidr(text);
    return [ip.firstIp(cidr), ip.lastIp(cidr), ip.maskOf(cidr)].map(ip.formatIp);
  };
  assert.deepEqual(bounds("10.0.0.5/24"), ["10.0.0.0", "10.0.0.255", "255.255.255.0"]);
  assert.deepEqual(bounds("10.0.0.5/32"), ["10.0.0.5", "10.0.0.5", "255.255.255.255"]);
  assert.deepEqual(bounds("1.2.3.4/0"), ["0.0.0.0", "255.255.255.255", "0.0.0.0"]);
  assert.deepEqual(bounds("fd00::1/126"), [
    "fd00::",
    "fd00::3",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc",
  ]);
});

test("contains and overlaps, families and bounds, answer by prefix", () => {
  const net = ip.parseCidr("10.0.1.7/24");
  assert.equal(ip.contains(net, ip.parseIp("10.0.1.0")), true);
  assert.equal(ip.contains(net, ip.parseIp("10.0.1.255")), true);
  assert.equal(ip.contains(net, ip.parseIp("10.0.2.0")), false);
  assert.equal(ip.contains(ip.parseCidr("::/0"), ip.parseIp("10.0.1.0")), false);
  assert.equal(ip.overlaps(net, ip.parseCidr("10.0.0.0/8")), true);
  assert.equal(ip.overlaps(net, ip.parseCidr("10.0.0.0/24")), false);
  assert.equal(ip.overlaps(ip.parseCidr("0.0.0.0/0"), ip.parseCidr("::/0")), false);
});

test("offsetIp, carries and bounds, counts or throws", () => {
  assert.equal(ip.formatIp(ip.offsetIp(ip.parseIp("10.0.0.255"), 1)), "10.0.1.0");
  assert.equal(ip.formatIp(ip.offsetIp(ip.parseIp("fd00::"), (1n << 64n) + 1n)), "fd00:0:0:1::1");
  assert.throws(() => ip.offsetIp(ip.parseIp("255.255.255.255"), 1), ip.IpError);
  assert.throws(() => ip.offsetIp(ip.parseIp("::"), -1), ip.IpError);
});

test("ipToBytes and ipFromBytes, both families, are each other's inverse", () => {
  assert.deepEqual([...ip.ipToBytes(ip.parseIp("10.0.0.1"))], [10, 0, 0, 1]);
  for (const text of ["0.0.0.0", "10.0.0.1", "::", "::1", "fd00::abcd", "::ffff:10.0.0.1"]) {
    assert.equal(ip.formatIp(ip.ipFromBytes(ip.ipToBytes(ip.parseIp(text)))), text);
  }
  assert.throws(() => ip.ipFromBytes(Buffer.alloc(5)), ip.IpError);
});

test("compareIp, mixed families, sorts IPv4 first and by number", () => {
  const sorted = ["::1", "10.0.0.10", "10.0.0.9", "::"]
    .map(ip.parseIp)
    .sort(ip.compareIp)
    .map(ip.formatIp);
  assert.deepEqual(sorted, ["10.0.0.9", "10.0.0.10", "::", "::1"]);
});
