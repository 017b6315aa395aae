import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import {
  type DelegateHost,
  ExecutablePlugin,
  executableIpam,
} from "../../daemon/plugins/executable.ts";
import type { PluginCall } from "../../daemon/plugins/plugin.ts";
import { openLog } from "../../lib/base/log.ts";
import { DelegateCgroups } from "../../lib/cni/delegate-cgroup.ts";
import { CniError } from "../../lib/cni/errors.ts";
import type { CniResult, CniVersion, PluginConfig } from "../../lib/cni/types.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { moveIntoNode } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { part } from "../helpers/parts.ts";
import { stubPath } from "../helpers/plugin-call.ts";
import { LeakCheck } from "../helpers/state.ts";

// The reference plugins as delegates, started as podnetd starts them: through the stub's native mode, in a cgroup.
const lab = new Lab();
const node = moveIntoNode(lab);
const cniPath = [process.env["PODNET_DELEGATES"] ?? part("reference-plugins")];
const name = `podnet-test-delegates-${process.pid}`;
const cgroups = await DelegateCgroups.open({ name, log: openLog("silent") });
process.once("exit", () => lab[Symbol.dispose]());
const host: DelegateHost = { helper: stubPath, mntns: "/proc/self/ns/mnt", cgroups };

interface Attachment {
  readonly cniVersion: CniVersion;
  readonly pod: Place;
  readonly dataDir: string;
}

function callOf({ cniVersion, pod }: Attachment, config: PluginConfig): PluginCall {
  return {
    network: "blue",
    config: { ...config, name: "blue", cniVersion },
    // Executables use nothing of ours.
    host: undefined as unknown as Rtnetlink,
    signal: new AbortController().signal,
    containerId: "c1",
    ifName: "eth0",
    sandbox: undefined,
    netnsPath: pod.path,
    runtimeConfig: {},
    cniArgs: new Map([["PODNET_NETWORKS", "blue"]]),
    prevResult: undefined,
    ipam: undefined,
    state: { load: () => undefined, save: () => Promise.resolve() },
  };
}

function bridgeConfig({ dataDir }: Attachment): PluginConfig {
  const ranges = [[{ subnet: "10.77.0.0/24" }], [{ subnet: "fd77::/64" }]];
  const routes = [{ dst: "10.99.0.0/16", gw: "10.77.0.1" }];
  return {
    type: "bridge",
    bridge: "cni-blue",
    isGateway: true,
    mtu: 1400,
    ipam: { type: "host-local", dataDir, ranges, routes },
  };
}

const tuningConfig: PluginConfig = { type: "tuning", capabilities: { mac: true } };
const executable = (type: string) => new ExecutablePlugin({ type, cniPath, host });

async function addChain(attachment: Attachment): Promise<CniResult> {
  const first = await executable("bridge").add(callOf(attachment, bridgeConfig(attachment)));
  return await executable("tuning").add({
    ...callOf(attachment, tuningConfig),
    prevResult: first,
    runtimeConfig: { mac: "02:77:00:00:00:05" },
  });
}

async function delChain(attachment: Attachment, prevResult: CniResult | undefined): Promise<void> {
  await executable("tuning").del({ ...callOf(attachment, tuningConfig), prevResult });
  await executable("bridge").del({ ...callOf(attachment, bridgeConfig(attachment)), prevResult });
}

const addressFiles = (dataDir: string) =>
  existsSync(join(dataDir, "blue"))
    ? readdirSync(join(dataDir, "blue")).filter(
        (file) => /[.:]\d+$/.test(file) && !file.startsWith("last"),
      )
    : [];

for (const cniVersion of ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const) {
  test(`executable: the reference bridge, host-local and tuning attach, check and detach at ${cniVersion}`, async () => {
    const pod = lab.pod();
    const attachment = { cniVersion, pod, dataDir: lab.folder() };
    const result = await addChain(attachment);
    assert.deepEqual(
      result.ips.map(({ address, gateway }) => [address, gateway]),
      [
        ["10.77.0.2/24", "10.77.0.1"],
        ["fd77::2/64", "fd77::1"],
      ],
    );
    const inPod = result.interfaces.filter(({ sandbox }) => sandbox === pod.path);
    assert.deepEqual(
      inPod.map((link) => [link.name, link.mac]),
      [["eth0", "02:77:00:00:00:05"]],
    );
    const [link] = JSON.parse(pod.run("ip", "-j", "addr", "show", "eth0"));
    assert.deepEqual([link.address, link.mtu], ["02:77:00:00:00:05", 1400]);
    assert.deepEqual(addressFiles(attachment.dataDir).length, 2);
    const call = { ...callOf(attachment, bridgeConfig(attachment)), prevResult: result };
    await executable("bridge").check(call);
    await delChain(attachment, result);
    await delChain(attachment, undefined);
    assert.deepEqual(addressFiles(attachment.dataDir), []);
    assert.deepEqual(
      JSON.parse(pod.run("ip", "-j", "link")).map((one: { ifname: string }) => one.ifname),
      ["lo"],
    );
    lab.remove(pod);
  });
}

test("executable: a CHECK that finds the address gone fails with the plugin's words", async () => {
  const attachment: Attachment = { cniVersion: "1.0.0", pod: lab.pod(), dataDir: lab.folder() };
  const result = await addChain(attachment);
  attachment.pod.run("ip", "addr", "flush", "dev", "eth0");
  const call = { ...callOf(attachment, bridgeConfig(attachment)), prevResult: result };
  await assert.rejects(executable("bridge").check(call), /^CniError: plugin "bridge": /);
  await delChain(attachment, result);
});

test("executable: DEL works when the namespace is gone, and frees the address", async () => {
  const attachment: Attachment = { cniVersion: "1.0.0", pod: lab.pod(), dataDir: lab.folder() };
  const result = await addChain(attachment);
  lab.remove(attachment.pod);
  await delChain(attachment, result);
  assert.deepEqual(addressFiles(attachment.dataDir), []);
});

test("executable: an ADD that fails in its IPAM says why, with the code of the plugin", async () => {
  const attachment: Attachment = { cniVersion: "1.0.0", pod: lab.pod(), dataDir: lab.folder() };
  const config = {
    ...bridgeConfig(attachment),
    ipam: { type: "host-local", dataDir: attachment.dataDir, ranges: [] },
  };
  await assert.rejects(
    executable("bridge").add(callOf(attachment, config)),
    (error: unknown) =>
      error instanceof CniError && error.code > 0 && /plugin "bridge": .*range/.test(error.message),
  );
});

test("executable: the reference host-local is an IPAM plugin for our own types", async () => {
  const attachment: Attachment = { cniVersion: "1.0.0", pod: lab.pod(), dataDir: lab.folder() };
  const ipam = executableIpam({ type: "host-local", cniPath, host });
  const config = { ...bridgeConfig(attachment) };
  const result = await ipam.add(callOf(attachment, config));
  assert.deepEqual(result, {
    interfaces: [],
    ips: [
      { address: "10.77.0.2/24", gateway: "10.77.0.1" },
      { address: "fd77::2/64", gateway: "fd77::1" },
    ],
    routes: [{ dst: "10.99.0.0/16", gw: "10.77.0.1" }],
    dns: {},
  });
  const file = readFileSync(join(attachment.dataDir, "blue/10.77.0.2"), "utf8");
  assert.equal(file, "c1\r\neth0");
  await ipam.del(callOf(attachment, config));
  assert.deepEqual(addressFiles(attachment.dataDir), []);
});

/** The reference does not wait for the kernel, which takes the addresses of a link away a moment after the link. */
async function settled(leaks: LeakCheck): Promise<void> {
  for (let look = 0; look < 40; look++) {
    try {
      leaks.assertClean();
      return;
    } catch {
      await delay(50);
    }
  }
  leaks.assertClean();
}

test("executable: calls leave no cgroup, process or open file", async () => {
  const attachment: Attachment = { cniVersion: "1.0.0", pod: lab.pod(), dataDir: lab.folder() };
  const result = await addChain(attachment);
  await delChain(attachment, result);
  const leaks = new LeakCheck([node, attachment.pod]);
  const again = await addChain(attachment);
  await delChain(attachment, again);
  await settled(leaks);
});

test("executable: the reference bridge takes STATUS and GC, and GC leaves a valid attachment alone", async () => {
  const attachment: Attachment = { cniVersion: "1.1.0", pod: lab.pod(), dataDir: lab.folder() };
  const result = await addChain(attachment);
  const call = callOf(attachment, bridgeConfig(attachment));
  await executable("bridge").status(call);
  await executable("bridge").gc(call, [{ containerID: "c1", ifname: "eth0" }]);
  assert.equal(addressFiles(attachment.dataDir).length, 2);
  await executable("bridge").check({ ...call, prevResult: result });
  await delChain(attachment, result);
});

after(async () => {
  await cgroups.close();
  for (const root of ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"]) {
    assert.equal(existsSync(join(root, "podnet", name)), false);
  }
});
