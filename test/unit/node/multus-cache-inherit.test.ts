import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { NodeContext } from "../../../daemon/node/context.ts";
import { endInheritance } from "../../../daemon/node/multus/cache-end.ts";
import {
  findInherited,
  foreignAttachments,
  multusContainers,
} from "../../../daemon/node/multus/cache-inherit.ts";
import { openLog } from "../../../lib/base/log.ts";
import { CniError } from "../../../lib/cni/errors.ts";

let dir = "";
let node: NodeContext;

before(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-multus-"));
  mkdirSync(join(dir, "results"));
  const config = { multusCacheDir: dir, cniCacheDir: join(dir, "none"), cniBinDir: ["/nowhere"] };
  node = { config, log: openLog("silent") } as unknown as NodeContext;
});
after(() => rmSync(dir, { recursive: true }));

const base64 = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64");
const config = (name: string) => ({ cniVersion: "1.0.0", name, type: "bridge" });

/** `of`: NETWORK-CONTAINER-INTERFACE as a list. */
function result(of: readonly [string, string, string], more: object = {}): void {
  const [network, container, ifName] = of;
  const info = {
    kind: "cniCacheV1",
    containerId: container,
    config: base64(config(network)),
    ifName,
    networkName: network,
    capabilityArgs: { mac: "02:00:00:00:00:01" },
    result: { cniVersion: "1.0.0", interfaces: [], ips: [] },
    ...more,
  };
  writeFileSync(join(dir, "results", `${network}-${container}-${ifName}`), JSON.stringify(info));
}

const request = (containerId: string) => ({
  containerId,
  ifName: "eth0",
  networkName: "podnet",
  cniPath: [],
  cniVersion: "1.1.0" as const,
  config: {},
});

async function found(containerId: string) {
  const inherited = await findInherited(node, request(containerId));
  if (inherited === undefined || inherited === "in hand") return inherited;
  const names = inherited.attachments.map(({ network, ifName }) => `${network} ${ifName}`);
  return { ...inherited, names };
}

test("a file cut off after any byte: with the library's results every attachment is known, once, in order", async () => {
  const whole = JSON.stringify([
    { Name: "first", Bytes: base64(config("first")) },
    { Name: "a/second", Bytes: base64(config("second")) },
    { Name: "a/third", Bytes: base64(config("third")), ifnameRequest: "data0" },
  ]);
  result(["first", "cut", "eth0"]);
  result(["second", "cut", "net1"]);
  result(["third", "cut", "data0"]);
  result(["podnet", "cut", "eth0"]);
  for (let length = 0; length < whole.length; length += 1) {
    writeFileSync(join(dir, "cut"), whole.slice(0, length));
    const known = await found("cut");
    assert.ok(known !== undefined && known !== "in hand");
    const names = known.names.map((name) => name.replace("a/", ""));
    assert.deepEqual(names, ["first eth0", "second net1", "third data0"], `${length} bytes`);
    assert.equal(known.complete, false);
    assert.equal(known.files.torn, join(dir, "cut"));
    assert.equal(known.files.files.length, 3, "what the runtime remembers of podnet stays its own");
  }
  writeFileSync(join(dir, "cut"), whole);
  const sound = await found("cut");
  assert.ok(sound !== undefined && sound !== "in hand");
  assert.equal(sound.complete, true);
  assert.deepEqual(sound.attachments[0]?.capabilityArgs, { mac: "02:00:00:00:00:01" });
  assert.deepEqual(sound.names, ["first eth0", "a/second net1", "a/third data0"]);
});

test("results of another container, of a meta plugin, or that say nothing, are nobody's attachments", async () => {
  result(["with-mine-inside", "other", "eth0"]);
  result(["multus-cni-network", "mine", "eth0"], {
    config: base64({ ...config("m"), type: "multus" }),
  });
  writeFileSync(join(dir, "results", "broken-mine-net1"), '{"kind":');
  writeFileSync(join(dir, "results", "old-mine-net2"), '{"cniVersion":"0.3.1","ips":[]}');
  const known = await found("mine");
  assert.ok(known !== undefined && known !== "in hand");
  assert.deepEqual(known.names, []);
  assert.equal(known.files.files.length, 3);
});

test("nothing is known of a container that no file names; a folder is no container", async () => {
  assert.equal(await found("nobody"), undefined);
  assert.equal(await found("results"), undefined);
  assert.ok(!(await multusContainers(node.config)).includes("results"));
});

test("a Multus that delegates to podnet has the sandbox in hand", async () => {
  writeFileSync(
    join(dir, "alive"),
    JSON.stringify([{ Bytes: base64({ name: "p", type: "podnet" }) }]),
  );
  assert.equal(await found("alive"), "in hand");
});

test("files that can't be read are a retriable error, not nothing", async () => {
  const broken = { ...node, config: { ...node.config, multusCacheDir: join(dir, "x\0y") } };
  await assert.rejects(
    findInherited(broken, request("c")),
    (error) =>
      error instanceof CniError && error.code === 11 && /repair or remove/.test(error.message),
  );
});

test("GC learns of everything that others attached, damaged files included", async () => {
  writeFileSync(join(dir, "gc"), `[{"Name":"a/n","Bytes":"${base64(config("n"))}"},{"Na`);
  result(["late", "gc", "net1"]);
  const all = await foreignAttachments(node.config);
  const own = all.filter(({ containerID }) => containerID === "gc");
  assert.deepEqual(own.map(({ network, ifname }) => `${network} ${ifname}`).toSorted(), [
    "late net1",
    "n eth0",
  ]);
});

test("at the end the files go, and a damaged one is kept for a person; a failure is only logged", () => {
  const stateDir = join(dir, "state");
  mkdirSync(stateDir);
  writeFileSync(join(dir, "torn"), "half");
  const at = { config: { ...node.config, stateDir }, log: node.log };
  const record = (torn: string) =>
    ({ containerId: "torn", inherited: { files: [], torn } }) as unknown as Parameters<
      typeof endInheritance
    >[1];
  endInheritance(at, record(join(dir, "torn")));
  endInheritance(at, record(join(dir, "torn")));
  const { readFileSync } = process.getBuiltinModule("node:fs");
  assert.equal(readFileSync(join(stateDir, "multus-unreadable", "torn"), "utf8"), "half");
  assert.doesNotThrow(() => endInheritance(at, record("/proc/1/x\0")));
});
