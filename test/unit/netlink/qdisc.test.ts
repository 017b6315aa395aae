import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import { emitFilter } from "../../../lib/netlink/conntrack.ts";
import {
  emitIngress,
  emitRedirect,
  emitTokenBucket,
  parseQdisc,
  parseRedirect,
  tokenBucketParameters,
} from "../../../lib/netlink/qdisc.ts";

const hex = (text: string) => Buffer.from(text.replaceAll(/\s/g, ""), "hex");

/** As the reference plugin bandwidth 1.9.1 sends them for 1 Mbit/s with a burst of 80 kbit (seen by strace). */
const tokenBucket = hex(`
  00000000 03000000 00000100 ffffffff 00000000
  0800 0100 74626600
  2c00 0200 2800 0100
    000000000000000048e80100 000000000000000000000000 45330000 d0121300 00000000`);
const ingress = hex(
  "00000000 03000000 0000ffff f1ffffff 00000000 0c00 0100 696e677265737300 0400 0200",
);
/** The first of the reference's two actions (the second one is never reached), without the two bytes that it sends after struct tc_mirred. */
const redirect = hex(`
  00000000 03000000 00000000 0000ffff 00030100
  0800 0100 75333200
  6800 0200
    2400 0500 01000100 000000000000000000000000 00000000000000000000000000000000
    0800 0100 01000100
    3800 0700 3400 0100
      0b00 0100 6d697272656400 00
      2400 0200 2000 0200 00000000 00000000 04000000 00000000 00000000 01000000 08000000`);

test("qdisc: a token bucket is what the reference sends, and comes back", () => {
  const bucket = { rate: 125_000, burst: 10_000, latency: 25_000 };
  const bytes = emitTokenBucket(3, bucket);
  assert.equal(bytes.toString("hex"), tokenBucket.toString("hex"));
  assert.deepEqual(parseQdisc(bytes), {
    index: 3,
    kind: "tbf",
    handle: 0x10000,
    parent: 0xffffffff,
    tokenBucket: { rate: 125_000, limit: 13_125, buffer: 1_250_000 },
  });
});

test("qdisc: numbers beyond 32 bits are held to the largest instead of wrapping", () => {
  const { limit, buffer } = tokenBucketParameters({
    rate: 1000,
    burst: 268_435_455,
    latency: 25_000,
  });
  assert.deepEqual([limit, buffer], [268_435_480, 0xffffffff]);
});

test("qdisc: a rate beyond 32 bits goes in an attribute of its own", () => {
  const bytes = emitTokenBucket(3, { rate: 12_500_000_000, burst: 500_000_000, latency: 25_000 });
  const { tokenBucket: found } = parseQdisc(bytes);
  assert.deepEqual(found, { rate: 12_500_000_000, limit: 812_500_000, buffer: 625_000 });
});

test("qdisc: the ingress qdisc and the redirection of everything that arrives", () => {
  assert.equal(emitIngress(3).toString("hex"), ingress.toString("hex"));
  assert.deepEqual(parseQdisc(ingress), {
    index: 3,
    kind: "ingress",
    handle: 0xffff0000,
    parent: 0xfffffff1,
    tokenBucket: undefined,
  });
  const bytes = emitRedirect(3, 8);
  assert.deepEqual(parseRedirect(bytes), 8);
  assert.equal(bytes.toString("hex"), redirect.toString("hex"));
});

test("qdisc: other kinds have no numbers, cut messages are refused", () => {
  assert.equal(
    parseQdisc(hex("00000000 01000000 00000000 ffffffff 02000000 0c00 0100 6e6f717565756500")).kind,
    "noqueue",
  );
  assert.equal(
    parseRedirect(hex("00000000 01000000 00000000 ffffffff 02000000 0a00 0100 6d617463680000 00")),
    undefined,
  );
  for (const parse of [parseQdisc, parseRedirect])
    assert.throws(() => parse(hex("0000")), NetlinkDecodeError);
});

test("conntrack: a dump filtered by protocol and port", () => {
  assert.equal(
    emitFilter(2, { protocol: 17, port: 5353 }).toString("hex"),
    // struct nfgenmsg; CTA_TUPLE_ORIG { CTA_TUPLE_PROTO { number, port } }; CTA_FILTER { flags of the first packet, of the answer }
    hex(
      "02000000 1800 0180 1400 0280 0500 0100 11000000 0600 0300 14e90000 1400 1980 0800 0100 28000000 0800 0200 00000000",
    ).toString("hex"),
  );
});
