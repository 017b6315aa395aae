import assert from "node:assert/strict";
import { test } from "node:test";
import {
  buildRangeSet,
  formatRangeSet,
  nextFree,
  type RangeSpec,
  rangeOf,
  setsOverlap,
} from "../../../lib/api/ip-ranges.ts";
import { formatIp, parseCidr, parseIp } from "../../../lib/base/ip.ts";

type Texts = { subnet: string; rangeStart?: string; rangeEnd?: string; gateway?: string };

function spec(texts: Texts): RangeSpec {
  const ip = (text: string | undefined) => (text === undefined ? undefined : parseIp(text));
  return {
    subnet: parseCidr(texts.subnet),
    rangeStart: ip(texts.rangeStart),
    rangeEnd: ip(texts.rangeEnd),
    gateway: ip(texts.gateway),
  };
}
const setOf = (...texts: Texts[]) => buildRangeSet(texts.map(spec));

/** The addresses in the order in which they are given out, each taken for good. */
function order(texts: Texts[], last: string | undefined, count: number): string[] {
  const set = setOf(...texts);
  const taken = new Set<bigint>();
  const given: string[] = [];
  let cursor = last === undefined ? undefined : parseIp(last);
  for (let step = 0; step < count; step++) {
    const next = nextFree(set, cursor, (value) => taken.has(value));
    if (next === undefined) break;
    taken.add(next.ip.value);
    given.push(formatIp(next.ip));
    cursor = next.ip;
  }
  return given;
}

test("a range, when only the subnet is given, goes from the first to the last usable address", () => {
  assert.equal(formatRangeSet(setOf({ subnet: "10.1.0.0/24" })), "10.1.0.1-10.1.0.254");
  assert.equal(formatRangeSet(setOf({ subnet: "fd00::/120" })), "fd00::1-fd00::ff");
  assert.equal(formatIp(setOf({ subnet: "10.1.0.0/24" })[0].gateway), "10.1.0.1");
});

const refused: [string, Texts[], RegExp][] = [
  ["is empty", [], /no range/],
  ["is too small (IPv4)", [{ subnet: "10.1.0.0/31" }], /"10.1.0.0\/31": too small/],
  ["is too small (IPv6)", [{ subnet: "fd00::/127" }], /too small/],
  ["has host bits", [{ subnet: "10.1.0.7/24" }], /host bits set, use "10.1.0.0\/24"/],
  ["starts outside", [{ subnet: "10.1.0.0/24", rangeStart: "10.2.0.1" }], /rangeStart "10.2.0.1"/],
  ["ends outside", [{ subnet: "10.1.0.0/24", rangeEnd: "10.2.0.1" }], /rangeEnd "10.2.0.1"/],
  ["starts in another family", [{ subnet: "10.1.0.0/24", rangeStart: "fd00::1" }], /rangeStart/],
  [
    "ends before it starts",
    [{ subnet: "10.1.0.0/24", rangeStart: "10.1.0.9", rangeEnd: "10.1.0.4" }],
    /rangeStart "10.1.0.9": after rangeEnd "10.1.0.4"/,
  ],
  ["mixes families", [{ subnet: "10.1.0.0/24" }, { subnet: "fd00::/64" }], /one address family/],
  ["overlaps itself", [{ subnet: "10.1.0.0/24" }, { subnet: "10.1.0.0/25" }], /overlap/],
];
for (const [what, texts, reason] of refused) {
  test(`a range set, when it ${what}, is refused with the reason`, () => {
    assert.throws(() => setOf(...texts), reason);
  });
}

test("allocation, from an empty set, leaves out the gateway and ends when all are taken", () => {
  assert.deepEqual(order([{ subnet: "10.1.0.0/29" }], undefined, 9), [
    "10.1.0.2",
    "10.1.0.3",
    "10.1.0.4",
    "10.1.0.5",
    "10.1.0.6",
  ]);
});

test("allocation, after a last address, goes on behind it and comes around to it last", () => {
  assert.deepEqual(order([{ subnet: "10.1.0.0/29", gateway: "10.1.0.6" }], "10.1.0.3", 9), [
    "10.1.0.4",
    "10.1.0.5",
    "10.1.0.1",
    "10.1.0.2",
    "10.1.0.3",
  ]);
});

test("allocation, over several ranges of a set, passes from one to the next and around", () => {
  const texts = [
    { subnet: "10.1.0.0/30", gateway: "10.9.0.1" },
    { subnet: "10.3.0.0/24", rangeStart: "10.3.0.7", rangeEnd: "10.3.0.8" },
  ];
  assert.deepEqual(order(texts, "10.3.0.7", 9), ["10.3.0.8", "10.1.0.1", "10.1.0.2", "10.3.0.7"]);
});

test("allocation, after a last address that is in no range, begins anew", () => {
  assert.deepEqual(order([{ subnet: "10.1.0.0/29" }], "10.200.0.1", 1), ["10.1.0.2"]);
  assert.deepEqual(order([{ subnet: "10.1.0.0/29" }], "fd00::1", 1), ["10.1.0.2"]);
});

test("allocation, at the very end of the address space, does not run over it", () => {
  const texts = [{ subnet: "255.255.255.0/24", rangeEnd: "255.255.255.255" }];
  assert.deepEqual(order(texts, "255.255.255.255", 1), ["255.255.255.2"]);
});

test("an address, of the other family with the same number, is in no range", () => {
  const set = setOf({ subnet: "0.0.0.0/8" });
  assert.equal(rangeOf(set, parseIp("::5")), undefined);
  assert.notEqual(rangeOf(set, parseIp("0.0.0.5")), undefined);
});

test("two sets, when they share an address, overlap; of two families they do not", () => {
  const one = setOf({ subnet: "10.1.0.0/24", rangeEnd: "10.1.0.9" });
  assert.equal(setsOverlap(one, setOf({ subnet: "10.1.0.0/24", rangeStart: "10.1.0.9" })), true);
  assert.equal(setsOverlap(one, setOf({ subnet: "10.1.0.0/24", rangeStart: "10.1.0.10" })), false);
  assert.equal(setsOverlap(setOf({ subnet: "0.0.0.0/8" }), setOf({ subnet: "::/104" })), false);
});
