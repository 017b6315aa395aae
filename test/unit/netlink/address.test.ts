import assert from "node:assert/strict";
import { test } from "node:test";
import { emitAddress, emitAddressDump, parseAddress } from "../../../lib/netlink/address.ts";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import { dump, hex } from "../../helpers/hex.ts";

test("parseAddress, an IPv4 address as the kernel sent it, gives its fields", () => {
  const body = hex(
    "02 18 80 00 03000000", // AF_INET, /24, PERMANENT, universe, link 3
    "0800 0100 0a000005", // IFA_ADDRESS
    "0800 0200 0a000005", // IFA_LOCAL
    "0800 0400 0a0000ff", // IFA_BROADCAST
    "0700 0300 653000 00", // IFA_LABEL
    "0800 0800 80000000", // IFA_FLAGS
    "1400 0600 ffffffff ffffffff 5b060000 5b060000", // IFA_CACHEINFO
  );
  assert.deepEqual(parseAddress(body), {
    index: 3,
    address: "10.0.0.5/24",
    broadcast: "10.0.0.255",
    label: "e0",
    scope: 0,
    flags: 0x80,
  });
});

test("parseAddress, a point-to-point address, gives the own one and the peer's", () => {
  const body = hex(
    "02 1e 80 00 03000000",
    "0800 0100 0a090002", // IFA_ADDRESS: the peer's
    "0800 0200 0a090001",
    "0900 0300 65303a7800 000000",
    "0800 0800 80000000",
  );
  assert.deepEqual(parseAddress(body), {
    index: 3,
    address: "10.9.0.1/30",
    peer: "10.9.0.2",
    label: "e0:x",
    scope: 0,
    flags: 0x80,
  });
});

test("parseAddress, an IPv6 address without IFA_LOCAL, gives its fields and all flags", () => {
  const body = hex(
    "0a 40 82 fd 03000000",
    "1400 0100 fe80 0000000000000000 00fffe000002",
    "0800 0800 82020000", // PERMANENT, NODAD and one that has no room in the header
  );
  assert.deepEqual(parseAddress(body), {
    index: 3,
    address: "fe80::ff:fe00:2/64",
    scope: 253,
    flags: 0x282,
  });
});

test("parseAddress, what is no address, is undefined or a NetlinkDecodeError", () => {
  assert.equal(parseAddress(hex("07 00 00 00 03000000")), undefined);
  for (const text of [
    "02180000",
    "02 18 80 00 03000000",
    "02 21 80 00 03000000 0800 0100 0a000005",
    "02 18 80 00 03000000 0700 0100 0a0000 00",
  ]) {
    assert.throws(() => parseAddress(hex(text)), NetlinkDecodeError, text);
  }
});

test("emitAddress, both families, writes address, broadcast, label and flags", () => {
  assert.deepEqual(
    dump(
      emitAddress({
        index: 3,
        address: "10.0.0.5/24",
        broadcast: "10.0.0.255",
        label: "e0",
        scope: 253,
        flags: 0x200,
      }),
    ),
    dump(
      hex(
        "02 18 00 fd 03000000",
        "0800 0200 0a000005",
        "0800 0100 0a000005",
        "0800 0400 0a0000ff",
        "0700 0300 653000 00",
        "0800 0800 00020000",
      ),
    ),
  );
  assert.deepEqual(
    dump(emitAddress({ index: 3, address: "fd00::5/64", flags: 2 })),
    dump(
      hex(
        "0a 40 02 00 03000000",
        "1400 0200 fd000000000000000000000000000005",
        "1400 0100 fd000000000000000000000000000005",
        "0800 0800 02000000",
      ),
    ),
  );
});

test("emitAddressDump, a link, is in the header where strict checking looks", () => {
  assert.deepEqual(dump(emitAddressDump(9)), dump(hex("00000000 09000000")));
});
