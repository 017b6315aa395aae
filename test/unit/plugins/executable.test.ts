import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import {
  type DelegateHost,
  ExecutablePlugin,
  executableIpam,
} from "../../../daemon/plugins/executable.ts";
import type { PluginCall } from "../../../daemon/plugins/plugin.ts";
import { openLog } from "../../../lib/base/log.ts";
import { DelegateCgroups } from "../../../lib/cni/delegate-cgroup.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import type { CniResult, CniVersion } from "../../../lib/cni/types.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";

const fixtures = resolve(import.meta.dirname, "../../fixtures/plugins");
let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-executable-"));
  process.env["FIXTURE_DIR"] = dir;
  process.env["FIXTURE_ANSWER"] = "";
});
afterEach(() => {
  rmSync(dir, { recursive: true });
  delete process.env["FIXTURE_DIR"];
  delete process.env["FIXTURE_ANSWER"];
});

const prevResult: CniResult = {
  interfaces: [{ name: "eth0", mtu: 1400, sandbox: "/run/netns/x", podNetwork: "blue" }],
  ips: [{ address: "10.1.0.5/24", interface: 0 }],
  routes: [],
  dns: {},
};

function callOf(cniVersion: CniVersion, more: Partial<PluginCall> = {}): PluginCall {
  return {
    network: "blue",
    config: { type: "record", name: "blue", cniVersion, capabilities: { mac: true }, "x-own": 1 },
    // An executable does its own work in the namespaces: nothing of ours is used.
    host: undefined as unknown as Rtnetlink,
    signal: new AbortController().signal,
    containerId: "c1",
    ifName: "eth0",
    sandbox: undefined,
    netnsPath: "/run/netns/x",
    runtimeConfig: { mac: "02:00:00:00:00:01" },
    cniArgs: new Map([
      ["IgnoreUnknown", "1"],
      ["PODNET_NETWORKS", "blue,red"],
      ["K8S_POD_NAME", "web"],
    ]),
    prevResult,
    ipam: undefined,
    state: { load: () => undefined, save: () => Promise.resolve() },
    ...more,
  };
}

const plugin = (type = "record", host: DelegateHost = {}) =>
  new ExecutablePlugin({ type, cniPath: [fixtures], host });
const stdin = (): unknown => JSON.parse(readFileSync(join(dir, "stdin"), "utf8"));
const env = () => readFileSync(join(dir, "env"), "utf8");
const wasCalled = () => existsSync(join(dir, "env"));

test("executable: ADD sends the derived configuration and takes the result of any version", async () => {
  process.env["FIXTURE_ANSWER"] = '{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.9/24"}}';
  const result = await plugin().add(callOf("1.0.0"));
  assert.deepEqual(result, {
    interfaces: [],
    ips: [{ address: "10.1.0.9/24" }],
    routes: [],
    dns: {},
  });
  assert.deepEqual(stdin(), {
    type: "record",
    name: "blue",
    cniVersion: "1.0.0",
    "x-own": 1,
    runtimeConfig: { mac: "02:00:00:00:00:01" },
    prevResult: {
      cniVersion: "1.0.0",
      interfaces: [{ name: "eth0", sandbox: "/run/netns/x", podNetwork: "blue" }],
      ips: [{ address: "10.1.0.5/24", interface: 0 }],
    },
  });
  assert.match(env(), /^CNI_COMMAND=ADD$/m);
  assert.match(env(), /^CNI_CONTAINERID=c1$/m);
  assert.match(env(), /^CNI_NETNS=\/run\/netns\/x$/m);
});

test("executable: podnet's own CNI_ARGS never reach a plugin, all others do", async () => {
  await plugin().del(callOf("1.0.0"));
  assert.match(env(), /^CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web$/m);
});

test("executable: DEL works without a namespace and has prevResult from 0.4.0 on", async () => {
  for (const [version, has] of [
    ["0.2.0", false],
    ["0.3.1", false],
    ["0.4.0", true],
    ["1.1.0", true],
  ] as const) {
    await plugin().del(callOf(version, { netnsPath: undefined }));
    assert.equal("prevResult" in (stdin() as object), has, version);
    assert.match(env(), /^CNI_NETNS=$/m);
  }
});

const verbs = [
  ["CHECK", "0.3.1", false],
  ["CHECK", "0.4.0", true],
  ["STATUS", "1.0.0", false],
  ["STATUS", "1.1.0", true],
  ["GC", "1.0.0", false],
  ["GC", "1.1.0", true],
] as const;
for (const [verb, version, called] of verbs) {
  test(`executable: ${verb} at ${version} is ${called ? "called" : "not called, and no failure"}`, async () => {
    const call = callOf(version);
    if (verb === "CHECK") await plugin().check(call);
    if (verb === "STATUS") await plugin().status(call);
    if (verb === "GC") await plugin().gc(call, [{ containerID: "c1", ifname: "eth0" }]);
    assert.equal(wasCalled(), called);
    if (called) assert.match(env(), new RegExp(`^CNI_COMMAND=${verb}$`, "m"));
  });
}

test("executable: GC gets the valid attachments, STATUS and GC nothing of an attachment", async () => {
  await plugin().gc(callOf("1.1.0"), [{ containerID: "c1", ifname: "eth0" }]);
  const config = stdin() as Record<string, unknown>;
  assert.deepEqual(config["cni.dev/valid-attachments"], [{ containerID: "c1", ifname: "eth0" }]);
  assert.deepEqual(["prevResult" in config, "runtimeConfig" in config], [false, false]);
  assert.doesNotMatch(env(), /^CNI_(CONTAINERID|IFNAME|NETNS|ARGS)=/m);
});

async function failure(promise: Promise<unknown>): Promise<CniError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof CniError, String(error));
  return error;
}

test("executable: an ADD that answers with nothing or no result fails with code 107", async () => {
  const empty = await failure(plugin().add(callOf("1.0.0")));
  assert.deepEqual([empty.code, empty.details], [107, "stdout is empty"]);
  const wrong = await failure(plugin("not-a-result").add(callOf("1.0.0")));
  assert.equal(wrong.code, 107);
  assert.match(
    wrong.message,
    /plugin "not-a-result": ADD answered with no usable result: .*ips\[0\]\.address/,
  );
});

test("executable: an error keeps the plugin's code in every verb", async () => {
  const failing = plugin("fails");
  const call = callOf("1.1.0");
  const calls = [
    failing.add(call),
    failing.del(call),
    failing.check(call),
    failing.status(call),
    failing.gc(call, []),
  ];
  assert.deepEqual(
    (await Promise.all(calls.map(failure))).map(({ code }) => code),
    [11, 11, 11, 11, 11],
  );
});

test("executable: what a plugin says on stderr reaches the log", async () => {
  const said: string[] = [];
  await plugin("record", { onStderr: (type, text) => said.push(`${type}: ${text}`) }).del(
    callOf("1.0.0"),
  );
  assert.deepEqual(said, ["record: a note for people"]);
});

test("executable: IPAM gives addresses only, with the whole configuration", async () => {
  process.env["FIXTURE_ANSWER"] = JSON.stringify({
    cniVersion: "1.0.0",
    interfaces: [{ name: "eth9" }],
    ips: [{ address: "10.1.0.9/24", gateway: "10.1.0.1", interface: 0 }],
    routes: [{ dst: "0.0.0.0/0" }],
  });
  const ipam = executableIpam({ type: "record", cniPath: [fixtures], host: {} });
  assert.deepEqual(await ipam.add(callOf("1.0.0")), {
    interfaces: [],
    ips: [{ address: "10.1.0.9/24", gateway: "10.1.0.1" }],
    routes: [{ dst: "0.0.0.0/0" }],
    dns: {},
  });
  assert.equal((stdin() as Record<string, unknown>)["x-own"], 1);
  await ipam.del(callOf("1.0.0"));
  assert.match(env(), /^CNI_COMMAND=DEL$/m);
});

test("executable: a process that gets away from its group ends with the call's cgroup", async (t) => {
  const name = `podnet-test-executable-${process.pid}`;
  const cgroups = await DelegateCgroups.open({ name, log: openLog("silent") });
  if (!cgroups.available) return t.skip("no cgroup hierarchy is writable here");
  try {
    const host = { cgroups, helper: join(fixtures, "run-delegate") };
    await plugin("escaped", host).add(callOf("1.0.0"));
    const pid = readFileSync(join(dir, "pid"), "utf8").trim();
    const state = existsSync(`/proc/${pid}/stat`)
      ? readFileSync(`/proc/${pid}/stat`, "utf8")
      : "gone";
    assert.match(state, /^gone$| [ZX] /);
    assert.match(
      readFileSync(join(dir, "arguments"), "utf8"),
      /--cgroup \/sys\/fs\/cgroup\S+c1-eth0-escaped\S+procs --mntns -/,
    );
  } finally {
    await cgroups.close();
  }
});

const commands = () => readFileSync(join(dir, "commands"), "utf8").trim().split("\n");

test("executable: a plugin that is older than its configuration is called with the version that it speaks", async () => {
  const older = plugin("older");
  assert.deepEqual((await older.add(callOf("1.1.0"))).ips, [{ address: "10.1.0.9/24" }]);
  const config = stdin() as {
    cniVersion: string;
    prevResult: { cniVersion: string; interfaces: unknown };
  };
  assert.deepEqual([config.cniVersion, config.prevResult.cniVersion], ["1.0.0", "1.0.0"]);
  assert.deepEqual(commands(), ["ADD", "VERSION", "ADD"]);
  await older.del(callOf("1.1.0"));
  assert.deepEqual(commands().slice(3), ["DEL"], "it is asked once");
});

test("executable: STATUS and GC of a plugin that is too old for them succeed without it", async () => {
  const older = plugin("older");
  await older.status(callOf("1.1.0"));
  await older.gc(callOf("1.1.0"), []);
  assert.deepEqual(commands(), ["STATUS", "VERSION"]);
});

test("executable: a plugin older than VERSION speaks 0.1.0", async () => {
  assert.deepEqual((await plugin("oldest").add(callOf("1.0.0"))).ips, [{ address: "10.1.0.9/24" }]);
});

test("executable: a plugin without a version in common fails with its own words", async () => {
  const error = await failure(plugin("too-new").add(callOf("1.1.0")));
  assert.deepEqual([error.code, error.message], [1, 'plugin "too-new": incompatible CNI versions']);
  assert.deepEqual(commands(), ["ADD", "VERSION"]);
});

test("executable: a plugin that refuses a version which it speaks is not called again", async () => {
  const error = await failure(plugin("contrary").add(callOf("1.1.0")));
  assert.equal(error.code, 1);
  assert.deepEqual(commands(), ["ADD", "VERSION"]);
});
