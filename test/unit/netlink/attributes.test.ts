import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Attributes,
  AttributeWriter,
  listAttributes,
  macToBytes,
  NetlinkDecodeError,
  present,
} from "../../../lib/netlink/attributes.ts";
import { dump, hex } from "../../helpers/hex.ts";

test("AttributeWriter, every kind of value, writes length, type, payload and padding", () => {
  const written = new AttributeWriter()
    .u8(1)
    .pad()
    .attributeU8(1, 0xab)
    .attributeU16(2, 0x1234)
    .attributeU16BigEndian(3, 0x8100)
    .attributeU32(4, 0xffffffff)
    .attributeText(5, "br0")
    .attributeMac(6, "02:00:00:00:00:0a")
    .attributeIp(7, "10.0.0.1")
    .flag(8)
    .finish();
  assert.deepEqual(
    dump(written),
    dump(
      hex(
        "01 000000", // a header byte, padded
        "0500 0100 ab 000000",
        "0600 0200 3412 0000",
        "0600 0300 8100 0000",
        "0800 0400 ffffffff",
        "0800 0500 62723000", // with its zero byte
        "0a00 0600 02000000000a 0000",
        "0800 0700 0a000001",
        "0400 0800",
      ),
    ),
  );
});

test("AttributeWriter, fork and join, give nested lengths without the padding after them", () => {
  const written = new AttributeWriter()
    .fork(18)
    .attributeText(1, "veth")
    .fork(2)
    .attributeU8(1, 1)
    .join()
    .join()
    .finish();
  assert.deepEqual(
    dump(written),
    dump(
      hex(
        "1c00 1280", // 28 bytes, type 18, nested
        "0900 0100 7665746800 000000",
        "0c00 0280", // 12 bytes, type 2, nested
        "0500 0100 01 000000",
      ),
    ),
  );
});

test("AttributeWriter, more than its first buffer, keeps what was written", () => {
  const writer = new AttributeWriter();
  for (let at = 0; at < 500; at++) writer.attributeU32(at, at);
  const found = new Attributes(writer.finish(), "test");
  assert.equal(found.types().length, 500);
  assert.equal(found.u32(499), 499);
  assert.equal(found.u32(0), 0);
});

test("AttributeWriter, fork and join that do not match, throw", () => {
  assert.throws(() => new AttributeWriter().join(), /join without fork/);
  assert.throws(() => new AttributeWriter().fork(1).finish(), /fork without join/);
});

test("Attributes, types that nobody knows, are kept, and flags of types are ignored", () => {
  const found = new Attributes(hex("0800 e783 01020304", "0800 0440 00000007"), "test");
  assert.deepEqual(found.types(), [0x3e7, 4]);
  assert.deepEqual(found.bytes(0x3e7), hex("01020304"));
  assert.equal(found.has(5), false);
  assert.equal(found.u32(5), undefined);
});

test("Attributes, malformed bytes, throw a NetlinkDecodeError that names the part", () => {
  const bad = [
    "0300 0100 00000000", // shorter than its own header
    "0900 0100 00000000", // longer than the bytes
    "0800 0100 00000000 ffff 0200", // the second one is
  ];
  for (const text of bad) {
    assert.throws(
      () => listAttributes(hex(text), "thing"),
      (error) => error instanceof NetlinkDecodeError && error.message.startsWith("parse thing: "),
    );
  }
  const short = new Attributes(hex("0600 0100 0102 0000", "0700 0200 010203 00"), "thing");
  assert.throws(() => short.u32(1), NetlinkDecodeError);
  assert.throws(() => short.ip(2), NetlinkDecodeError);
});

test("Attributes, text, ends at its first zero byte or at its end", () => {
  const found = new Attributes(hex("0600 0100 6162 0000", "0800 0200 61006200"), "test");
  assert.equal(found.text(1), "ab");
  assert.equal(found.text(2), "a");
});

test("macToBytes, anything else, throws a TypeError that quotes it", () => {
  assert.deepEqual(macToBytes("02:00:AB:00:00:01"), hex("0200ab000001"));
  for (const text of ["", "02:00:00:00:00:0g", "020000000001", "2:0:0:0:0:1"]) {
    assert.throws(
      () => macToBytes(text),
      (error) => error instanceof TypeError && error.message.includes(`"${text}"`),
    );
  }
});

test("present, undefined values, are left out and false ones stay", () => {
  assert.deepEqual(Object.keys(present({ a: undefined, b: false, c: 0 })), ["b", "c"]);
});
