import assert from "node:assert/strict";
import { test } from "node:test";
import { canonicalMac } from "../../../daemon/plugins/shared/mac.ts";
import {
  advertisedMac,
  duplicateProbe,
  gratuitousArp,
  macBytes,
  unsolicitedAdvertisement,
} from "../../../daemon/plugins/shared/packets.ts";

const mac = Uint8Array.of(2, 0, 0, 0, 0, 5);

test("a gratuitous ARP is a request with the same sender and target", () => {
  const expected =
    "0001" + // Ethernet
    "0800" + // IPv4
    "0604" + // lengths
    "0001" + // request
    "0200000000050a010002" + // sender
    "0000000000000a010002"; // target
  assert.equal(gratuitousArp(mac, "10.1.0.2").toString("hex"), expected);
});

test("an unsolicited advertisement overrides, goes to all nodes and has a right checksum", () => {
  const packet = unsolicitedAdvertisement(mac, "fd00:1::2");
  const expected =
    "60000000" + // version 6
    "0020" + // payload length
    "3aff" + // ICMPv6, hop limit 255
    "fd000001000000000000000000000002" +
    "ff020000000000000000000000000001" +
    "8800" + // neighbour advertisement
    checksum(packet) +
    "20000000" + // override
    "fd000001000000000000000000000002" +
    "0201020000000005"; // target link-layer address
  assert.equal(packet.toString("hex"), expected);
  assert.equal(sumOf(packet), 0xffff);
});

test("a duplicate probe comes from nobody and asks the solicited-node group", () => {
  const packet = duplicateProbe("fd00:1::abcd:1234");
  assert.equal(packet.subarray(8, 24).toString("hex"), "00".repeat(16));
  assert.equal(packet.subarray(24, 40).toString("hex"), "ff0200000000000000000001ffcd1234");
  assert.equal(packet.readUInt8(40), 135);
  assert.equal(sumOf(packet), 0xffff);
});

test("the owner's hardware address is read from an advertisement about the address, and from no other packet", () => {
  const packet = unsolicitedAdvertisement(mac, "fd00:1::2");
  assert.equal(advertisedMac(packet, "fd00:1::2"), "02:00:00:00:00:05");
  assert.equal(advertisedMac(packet, "fd00:1::3"), undefined);
  assert.equal(advertisedMac(packet.subarray(0, 60), "fd00:1::2"), undefined);
  assert.equal(advertisedMac(duplicateProbe("fd00:1::2"), "fd00:1::2"), undefined);
});

test("hardware addresses are taken in the three usual forms and in no other", () => {
  for (const text of ["02:00:00:AA:bb:05", "02-00-00-aa-BB-05", "0200.00aa.bb05"]) {
    assert.equal(canonicalMac(text), "02:00:00:aa:bb:05");
  }
  for (const text of ["", "zz", "02:00:00:aa:bb", "02:00-00:aa:bb:05", "020000aabb05"]) {
    assert.equal(canonicalMac(text), undefined);
  }
  assert.equal(macBytes(`${"00:".repeat(19)}00`), undefined);
});

function checksum(packet: Buffer): string {
  return packet.subarray(42, 44).toString("hex");
}

/** The one's complement sum over pseudo header and message, checksum included: 0xffff when it is right. */
function sumOf(packet: Buffer): number {
  const pseudo = Buffer.alloc(8);
  pseudo.writeUInt32BE(packet.length - 40, 0);
  pseudo.writeUInt8(58, 7);
  const bytes = Buffer.concat([packet.subarray(8, 40), pseudo, packet.subarray(40)]);
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum;
}
