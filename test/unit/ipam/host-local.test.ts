import assert from "node:assert/strict";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { createHostLocal } from "../../../daemon/ipam/host-local.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import { countFsCalls } from "../../helpers/fs-calls.ts";
import { type CallParts, ipamCall } from "./ipam-call.ts";

const folder = mkdtempSync(join(tmpdir(), "podnet-test-ipam-"));
after(() => rmSync(folder, { recursive: true }));
let made = 0;

/** A plugin with a fresh directory for network "blue". */
function fresh(ipam: JsonObject = {}) {
  const dataDir = join(folder, String(++made));
  const plugin = createHostLocal();
  const call = (parts: Partial<CallParts> = {}) =>
    ipamCall({
      ...parts,
      ipam: {
        type: "host-local",
        dataDir,
        ranges: [[{ subnet: "10.1.0.0/29" }]],
        ...ipam,
        ...parts.ipam,
      },
    });
  const dir = join(dataDir, "blue");
  return { plugin, call, dir, files: () => readdirSync(dir).toSorted() };
}

const code = (number: number, text: RegExp) => (error: unknown) =>
  error instanceof CniError && error.code === number && text.test(error.message);

test("host-local, at ADD, writes the reference's files and gives address, gateway, routes and DNS", async () => {
  const { plugin, call, dir, files } = fresh();
  const resolvConf = join(folder, "resolv.conf");
  writeFileSync(
    resolvConf,
    "# c\nnameserver 9.9.9.9\nsearch a b\ndomain d\noptions x\n; nameserver 8.8.8.8\n",
  );
  const result = await plugin.add(
    call({ ipam: { routes: [{ dst: "0.0.0.0/0", mtu: 1400, gw: "" }], resolvConf } }),
  );
  assert.deepEqual(result, {
    interfaces: [],
    ips: [{ address: "10.1.0.2/29", gateway: "10.1.0.1" }],
    routes: [{ dst: "0.0.0.0/0", mtu: 1400 }],
    dns: { nameservers: ["9.9.9.9"], domain: "d", search: ["a", "b"], options: ["x"] },
  });
  assert.deepEqual(files(), ["10.1.0.2", "last_reserved_ip.0", "lock"]);
  assert.equal(readFileSync(join(dir, "10.1.0.2"), "utf8"), "c1\r\neth0");
  assert.equal(readFileSync(join(dir, "last_reserved_ip.0"), "utf8"), "10.1.0.2");
  assert.equal(statSync(join(dir, "10.1.0.2")).mode & 0o777, 0o600);
});

test("host-local, when an ADD comes again, gives the same addresses and takes no more", async () => {
  const { plugin, call, files } = fresh({
    ranges: [[{ subnet: "10.1.0.0/29" }], [{ subnet: "fd00::/64" }]],
  });
  const first = await plugin.add(call());
  const before = files();
  assert.deepEqual(await plugin.add(call()), first);
  assert.deepEqual(await createHostLocal().add(call()), first, "after a restart too");
  assert.deepEqual(files(), before);
});

test("host-local, when an ADD was cut off between two families, completes it", async () => {
  const { plugin, call, dir } = fresh({
    ranges: [[{ subnet: "10.1.0.0/29" }], [{ subnet: "fd00::/64" }]],
  });
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "10.1.0.5"), "c1\r\neth0");
  const { ips } = await plugin.add(call());
  assert.deepEqual(
    ips.map((ip) => ip.address),
    ["10.1.0.5/29", "fd00::2/64"],
  );
});

test("host-local, round robin, does not give a freed address at once", async () => {
  const { plugin, call } = fresh();
  await plugin.add(call());
  await plugin.del(call());
  const { ips } = await plugin.add(call({ containerId: "c2" }));
  assert.equal(ips[0]?.address, "10.1.0.3/29");
});

test("host-local, when the text of the last address is longer than the new one's, leaves nothing of it", async () => {
  const { plugin, call, dir } = fresh({ ranges: [[{ subnet: "10.1.0.0/24" }]] });
  await plugin.add(call());
  writeFileSync(join(dir, "last_reserved_ip.0"), "10.1.0.254\n\n\n");
  await plugin.add(call({ containerId: "c2" }));
  assert.equal(readFileSync(join(dir, "last_reserved_ip.0"), "utf8"), "10.1.0.3");
});

test("host-local, when the range is full, fails with code 108 and keeps nothing of the ADD", async () => {
  const { plugin, call, files } = fresh({
    ranges: [[{ subnet: "fd00::/64" }], [{ subnet: "10.1.0.0/30" }]],
  });
  await plugin.add(call());
  const before = files();
  await assert.rejects(
    plugin.add(call({ containerId: "c2" })),
    code(108, /network "blue".*no address left in range 10\.1\.0\.1-10\.1\.0\.2/),
  );
  assert.deepEqual(files(), before);
});

test("host-local, when a requested address is taken, the gateway or in no range, fails with code 108", async () => {
  const { plugin, call } = fresh();
  await plugin.add(call({ args: { cni: { ips: ["10.1.0.5"] } } }));
  const ask = (ip: string) => plugin.add(call({ containerId: "c2", runtimeConfig: { ips: [ip] } }));
  await assert.rejects(ask("10.1.0.5"), code(108, /"10.1.0.5": is taken/));
  await assert.rejects(ask("10.1.0.1"), code(108, /"10.1.0.1": is the gateway/));
  await assert.rejects(ask("10.9.0.1"), code(108, /"10.9.0.1": in none/));
  await assert.rejects(ask("10.1.0.7"), code(108, /"10.1.0.7": in none/));
});

test("host-local, when addresses are requested by CNI_ARGS, args and runtimeConfig, gives each in its set", async () => {
  const { plugin, call } = fresh({
    ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "10.2.0.0/24" }], [{ subnet: "fd00::/64" }]],
  });
  const parts = {
    cniArgs: { IP: "10.2.0.9/16" },
    args: { cni: { ips: ["fd00::9"] } },
    runtimeConfig: { ips: ["10.1.0.9/8"] },
  };
  const { ips } = await plugin.add(call(parts));
  assert.deepEqual(
    ips.map((ip) => ip.address),
    ["10.1.0.9/24", "10.2.0.9/24", "fd00::9/64"],
  );
  assert.deepEqual((await plugin.add(call(parts))).ips, ips, "again");
});

test("host-local, with runtimeConfig ipRanges, an inline range and ranges, takes them in this order", async () => {
  const { plugin, call } = fresh({
    subnet: "10.5.0.0/24",
    rangeStart: "10.5.0.20",
    rangeEnd: "10.5.0.30",
    gateway: "10.5.0.254",
  });
  const { ips } = await plugin.add(
    call({ runtimeConfig: { ipRanges: [[{ subnet: "10.7.0.0/24" }]] } }),
  );
  assert.deepEqual(ips, [
    { address: "10.7.0.2/24", gateway: "10.7.0.1" },
    { address: "10.5.0.20/24", gateway: "10.5.0.254" },
    { address: "10.1.0.2/29", gateway: "10.1.0.1" },
  ]);
});

const refused: [string, JsonObject, RegExp][] = [
  ["no range", { ranges: [] }, /no IP range is given/],
  ["an empty set", { ranges: [[]] }, /range set 0: has no range/],
  [
    "a subnet that is none",
    { ranges: [[{ subnet: "bad" }]] },
    /ipam.ranges\[0\]\[0\].subnet: "bad"/,
  ],
  ["a gateway that is none", { ranges: [[{ subnet: "10.1.0.0/24", gateway: "x" }]] }, /gateway/],
  [
    "ranges that overlap",
    { ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "10.1.0.0/25" }]] },
    /range set 1: overlaps range set 0/,
  ],
  ["a route that is none", { routes: [{ dst: "x" }] }, /ipam.routes\[0\].dst: "x"/],
  [
    "a route's gateway that is none",
    { routes: [{ dst: "10.0.0.0/8", gw: "y" }] },
    /ipam.routes\[0\].gw: "y"/,
  ],
  ["a resolvConf that is missing", { resolvConf: "/nonexistent" }, /ipam.resolvConf.*ENOENT/],
  ["a dataDir that is no text", { dataDir: 5 }, /ipam.dataDir/],
];
for (const [what, ipam, reason] of refused) {
  test(`host-local, with ${what}, fails with code 7 and names it`, async () => {
    const { plugin, call } = fresh(ipam);
    await assert.rejects(plugin.add(call()), code(7, reason));
  });
}

test("host-local, with two addresses of a family for an old result version, refuses", async () => {
  const { plugin, call } = fresh({
    ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "10.2.0.0/24" }]],
  });
  await assert.rejects(plugin.add(call({ cniVersion: "0.2.0" })), code(7, /0\.2\.0/));
});

test("host-local, at DEL, frees the interface's addresses only, and is idempotent", async () => {
  const { plugin, call, files } = fresh({
    ranges: [[{ subnet: "10.1.0.0/29" }], [{ subnet: "fd00::/64" }]],
  });
  await plugin.add(call());
  await plugin.add(call({ ifName: "net1" }));
  await plugin.del(call());
  await plugin.del(call());
  assert.deepEqual(files(), [
    "10.1.0.3",
    "fd00::3",
    "last_reserved_ip.0",
    "last_reserved_ip.1",
    "lock",
  ]);
});

test("host-local, at DEL without a valid range or directory, succeeds and makes no directory", async () => {
  const { plugin, call, dir } = fresh({ ranges: "nonsense" });
  await plugin.del(call());
  assert.equal(existsSync(dir), false);
});

test("host-local, at DEL, frees a file with the container id alone when there is no newer one", async () => {
  const { plugin, call, dir, files } = fresh();
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "10.1.0.2"), "c1\r\neth0\n");
  writeFileSync(join(dir, "10.1.0.3"), "c1");
  await plugin.del(call());
  assert.deepEqual(files(), ["10.1.0.3", "lock"]);
  await plugin.del(call());
  assert.deepEqual(files(), ["lock"]);
});

/** Content that no attachment wrote. */
function litter(dir: string): string[] {
  mkdirSync(join(dir, "10.1.0.2"), { recursive: true });
  writeFileSync(join(dir, "10.1.0.3"), "c1\r\neth0\r\nthird line");
  writeFileSync(join(dir, "10.1.0.4"), "x".repeat(5000));
  writeFileSync(join(dir, "10.1.0.5"), Buffer.from([0, 255, 254, 10]));
  symlinkSync("/etc/passwd", join(dir, "10.1.0.6"));
  writeFileSync(join(dir, "10.1.0.006"), "c1\r\neth0");
  writeFileSync(join(dir, "note.txt"), "c1\r\neth0");
  return readdirSync(dir).toSorted();
}

test("host-local, with foreign content in the directory, never frees it and counts it as taken", async () => {
  const { plugin, call, dir, files } = fresh();
  const before = litter(dir);
  await assert.rejects(plugin.add(call()), code(108, /no address left/));
  await plugin.del(call());
  await plugin.gc?.(call(), []);
  assert.deepEqual(files(), [...before, "lock"].toSorted());
});

test("host-local, at GC, frees what no valid attachment holds and torn files, and keeps the rest", async () => {
  const { plugin, call, dir, files } = fresh({ ranges: [[{ subnet: "10.1.0.0/24" }]] });
  await plugin.add(call());
  await plugin.add(call({ ifName: "net1" }));
  await plugin.add(call({ containerId: "gone" }));
  writeFileSync(join(dir, "10.1.0.9"), "");
  writeFileSync(join(dir, "10.1.0.10"), "old");
  writeFileSync(join(dir, "10.1.0.11"), "older");
  writeFileSync(join(dir, "10.1.0.12"), "not an attachment at all");
  await plugin.gc?.(call(), [
    { containerID: "c1", ifname: "eth0" },
    { containerID: "old", ifname: "eth0" },
  ]);
  assert.deepEqual(files(), ["10.1.0.10", "10.1.0.12", "10.1.0.2", "last_reserved_ip.0", "lock"]);
});

test("host-local, at CHECK, finds that the address is no longer reserved", async () => {
  const { plugin, call, dir } = fresh();
  await assert.rejects(plugin.check(call()), code(108, /no address is reserved/));
  await plugin.add(call());
  await plugin.check(call());
  rmSync(join(dir, "10.1.0.2"));
  await assert.rejects(plugin.check(call()), code(108, /no address is reserved/));
});

test("host-local, after a writer of ours was killed, removes its temporary file and allocates", async () => {
  const { plugin, call, dir, files } = fresh();
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, ".podnet-tmp"), "c1\r\neth0");
  assert.equal((await plugin.add(call())).ips[0]?.address, "10.1.0.2/29");
  assert.deepEqual(files(), ["10.1.0.2", "last_reserved_ip.0", "lock"]);
});

test("host-local, when others change the directory within a clock tick, never works from memory", async () => {
  const { plugin, call, dir } = fresh({ ranges: [[{ subnet: "10.1.0.0/24" }]] });
  for (let round = 0; round < 40; round++) {
    const id = `r${round}`;
    const given = (await plugin.add(call({ containerId: id }))).ips[0]?.address.split("/")[0] ?? "";
    rmSync(join(dir, given));
    writeFileSync(join(dir, given), `other${round}\r\neth0`);
    assert.notEqual(
      (await plugin.add(call({ containerId: id }))).ips[0]?.address.split("/")[0],
      given,
      "given twice",
    );
  }
});

test("host-local, while somebody holds the lock, waits without blocking and ends with its signal", async () => {
  const { tryLock } = await import("../../../lib/base/libc.ts");
  const { openSync, closeSync } = await import("node:fs");
  const { plugin, call, dir } = fresh();
  mkdirSync(dir, { recursive: true });
  const fd = openSync(join(dir, "lock"), "a");
  assert.equal(tryLock(fd), true);
  const impatient = plugin.add(call({ signal: AbortSignal.timeout(60) }));
  const behind = plugin.add(call({ containerId: "c2", signal: AbortSignal.timeout(90) }));
  const patient = plugin.add(call({ containerId: "c3" }));
  await assert.rejects(impatient, code(11, /reserve an address of network "blue"/));
  await assert.rejects(behind, code(11, /reserve an address/));
  closeSync(fd);
  assert.equal((await patient).ips[0]?.address, "10.1.0.2/29");
});

test("host-local, with 200 ADDs at once, gives 200 different addresses in order", async () => {
  const { plugin, call } = fresh({ ranges: [[{ subnet: "10.1.0.0/24" }]] });
  const results = await Promise.all(
    Array.from({ length: 200 }, (_, index) => plugin.add(call({ containerId: `c${index}` }))),
  );
  const addresses = results.map((result) => result.ips[0]?.address);
  assert.equal(new Set(addresses).size, 200);
  assert.equal(addresses[0], "10.1.0.2/24");
  await Promise.all(
    Array.from({ length: 200 }, (_, index) => plugin.del(call({ containerId: `c${index}` }))),
  );
});

test("host-local, with 3,000 addresses in the directory, asks the disk for no more than with none", async () => {
  const { plugin, call, dir } = fresh({ ranges: [[{ subnet: "10.1.0.0/16" }]] });
  const pairs = (count: number) =>
    countFsCalls(async () => {
      for (let index = 0; index < count; index++) {
        await plugin.add(call({ containerId: `t${index}` }));
        await plugin.del(call({ containerId: `t${index}` }));
      }
    });
  await pairs(1);
  const empty = await pairs(20);
  for (let index = 0; index < 3000; index++) {
    writeFileSync(join(dir, `10.1.${100 + (index >> 8)}.${index & 255}`), `full${index}\r\neth0`);
  }
  // Somebody else's files: all of them are read, once.
  const first = await pairs(1);
  assert.equal(first["promises.readdir"], 1);
  assert.ok((first["readSync"] ?? 0) >= 3000);
  assert.deepEqual(await pairs(20), empty);
});
