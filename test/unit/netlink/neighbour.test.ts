import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import {
  emitNeighbour,
  emitNeighbourDump,
  parseNeighbour,
} from "../../../lib/netlink/neighbour.ts";
import { dump, hex } from "../../helpers/hex.ts";

test("parseNeighbour, neighbours as the kernel sent them, gives their fields", () => {
  const body = hex(
    "02 00 0000 03000000 8000 00 01", // AF_INET, link 3, PERMANENT
    "0800 0100 0a000009", // NDA_DST
    "0a00 0200 020000000009 0000", // NDA_LLADDR
    "0800 0400 00000000", // NDA_PROBES
    "1400 0300 70000000 70000000 00000000 00000000", // NDA_CACHEINFO
  );
  assert.deepEqual(parseNeighbour(body), {
    index: 3,
    address: "10.0.0.9",
    mac: "02:00:00:00:00:09",
    state: 128,
    flags: 0,
  });
  const router = hex(
    "0a 00 0000 02000000 4000 80 05",
    "1400 0100 ff0200000000000000000001ff32cb8b",
  );
  assert.deepEqual(parseNeighbour(router), {
    index: 2,
    address: "ff02::1:ff32:cb8b",
    mac: undefined,
    state: 64,
    flags: 0x80,
  });
});

test("emitNeighbour, a neighbour, parses to itself", () => {
  const neighbour = {
    index: 3,
    address: "10.0.0.9",
    mac: "02:00:00:00:00:09",
    state: 128,
    flags: 0,
  };
  const bytes = emitNeighbour(neighbour);
  assert.deepEqual(
    dump(bytes),
    dump(
      hex("02 00 0000 03000000 8000 00 00", "0800 0100 0a000009", "0a00 0200 020000000009 0000"),
    ),
  );
  assert.deepEqual(parseNeighbour(bytes), neighbour);
  assert.deepEqual(
    dump(emitNeighbourDump(3)),
    dump(hex("00000000 00000000 00000000", "0800 0800 03000000")),
  );
});

test("parseNeighbour, what is no IP neighbour, is undefined or a NetlinkDecodeError", () => {
  assert.equal(
    parseNeighbour(hex("07 00 0000 03000000 8000 00 01", "0a00 0200 020000000009 0000")),
    undefined,
  );
  assert.throws(() => parseNeighbour(hex("0200")), NetlinkDecodeError);
  assert.throws(() => parseNeighbour(hex("02 00 0000 03000000 8000 00 01")), NetlinkDecodeError);
});
