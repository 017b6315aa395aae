import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { loadConfig } from "../../../daemon/node/config.ts";
import type { Finding } from "../../../daemon/node/doctor/finding.ts";
import { networkFindings } from "../../../daemon/node/doctor/networks.ts";
import { DirectoryNetworks, type NetworkSource } from "../../../daemon/node/networks.ts";
import { findPlugins } from "../../../daemon/node/plugin-finder.ts";
import type { NetworkRef } from "../../../lib/api/selection.ts";
import { openLog } from "../../../lib/base/log.ts";

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-doctor-"));
  mkdirSync(join(dir, "net.d"));
});
afterEach(() => rmSync(dir, { recursive: true }));

const log = openLog("silent");
const podNetwork = (name: string, spec: object) => ({
  apiVersion: "podnet.dev/v1alpha1",
  kind: "PodNetwork",
  metadata: { name },
  spec,
});
const nad = (name: string, config: object) => ({
  apiVersion: "k8s.cni.cncf.io/v1",
  kind: "NetworkAttachmentDefinition",
  metadata: { namespace: "app", name },
  spec: { config: JSON.stringify({ cniVersion: "1.0.0", ...config }) },
});

/** The findings about these objects. `extra`: what the source knows beside its list. */
async function findings(
  objects: readonly object[],
  extra?: readonly NetworkRef[],
): Promise<Finding[]> {
  writeFileSync(join(dir, "all.json"), objects.map((one) => JSON.stringify(one)).join("\n---\n"));
  const flags = { networksDir: dir, cniConfDir: join(dir, "net.d"), cniBinDir: join(dir, "bin") };
  using directory = new DirectoryNetworks({ networksDir: dir, cniConfDir: flags.cniConfDir }, log);
  const networks: NetworkSource =
    extra === undefined
      ? directory
      : {
          podNetwork: (name) => directory.podNetwork(name),
          podNetworkAttachment: (namespace, name) =>
            directory.podNetworkAttachment(namespace, name),
          nad: (namespace, name) => directory.nad(namespace, name),
          conflist: (name) => directory.conflist(name),
          list: async () => [],
          extra: async () => extra,
        };
  const plugins = findPlugins({ helper: undefined, cgroups: undefined, log });
  return await networkFindings({ networks, plugins, config: loadConfig(flags) });
}

const lines = (all: readonly Finding[]) => all.map(({ level, text }) => `${level} ${text}`);

const sound = podNetwork("blue", { parameters: { type: "bridge" } });

test("networks that can be used are one line, and those that nobody attaches to are not looked into", async () => {
  const other = { provider: "example.org/other" };
  const off = { enabled: false, parameters: { type: "vlan" } };
  const all = [sound, podNetwork("off", off), podNetwork("theirs", other)];
  assert.deepEqual(lines(await findings(all)), ["ok 3 known, all can be used"]);
});

test("each network that would fail by its configuration is one warning that names it and all its faults", async () => {
  const found = await findings([
    sound,
    podNetwork("tagged", { parameters: { type: "vlan", mtu: "big" } }),
    podNetwork("absent", { parameters: { type: "not-here" } }),
    podNetwork("elsewhere", { provider: "podnet.dev/conflist" }),
    nad("empty", { type: "bridge", ipam: { type: "host-local" } }),
    nad("broken", { plugins: [] }),
  ]);
  assert.deepEqual(
    found.map(({ level, check, todo }) => [level, check, todo !== undefined]),
    Array.from({ length: 5 }, () => ["warn", "networks", true]),
  );
  const expected = [
    /^PodNetwork "tagged": .*plugins\[0\]\.mtu.*plugins\[0\]\.master: missing$/,
    /^PodNetwork "absent": find plugin "not-here": no executable in ".*bin"/,
    /^PodNetwork "elsewhere": .*the node has no CNI configuration named "elsewhere"/,
    /^NetworkAttachmentDefinition "app\/empty": plugins\[0\]\.ipam\.ranges: missing/,
    /^NetworkAttachmentDefinition "app\/broken": .*plugins: there is none/,
  ];
  for (const [place, text] of expected.entries()) assert.match(found[place]?.text ?? "", text);
});

test("a configuration of the node that a PodNetwork stands for is looked into", async () => {
  const config = { cniVersion: "1.0.0", name: "own", plugins: [{ type: "tuning" }] };
  writeFileSync(join(dir, "net.d", "20-own.conflist"), JSON.stringify(config));
  const [first] = await findings([podNetwork("own", { provider: "podnet.dev/conflist" })]);
  assert.match(first?.text ?? "", /^PodNetwork "own": plugins\[0\]\.type: "tuning" changes an int/);
});

test("what a cluster has beside its networks is looked into as well, unless it has gone meanwhile", async () => {
  const ref = (name: string): NetworkRef => ({ kind: "nad", namespace: "app", name });
  const all = [nad("good", { type: "bridge" }), nad("bad", { type: "vlan" })];
  const found = await findings(all, [ref("good"), ref("bad"), ref("gone")]);
  assert.deepEqual(lines(found), [
    'warn NetworkAttachmentDefinition "app/bad": plugins[0].master: missing',
  ]);
});

test("a network with many faults is still one bounded line", async () => {
  const plugins = Array.from({ length: 40 }, () => ({ type: "vlan" }));
  const [first, ...others] = await findings([podNetwork("many", { parameters: { plugins } })]);
  assert.equal(others.length, 0);
  assert.ok((first?.text.length ?? 0) < 510, first?.text);
});
