import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeConflist } from "../../../lib/cni/conflist.ts";
import {
  deriveConfig,
  mergeCniArgs,
  runtimeConfigFor,
  undeclaredCapabilities,
} from "../../../lib/cni/derive.ts";
import type { CniResult } from "../../../lib/cni/types.ts";

const plugin = {
  type: "bridge",
  bridge: "b0",
  capabilities: { ips: true, mac: false },
  "x-own": [1],
};
const prevResult: CniResult = {
  interfaces: [{ name: "eth0", mtu: 1400 }],
  ips: [{ address: "10.1.0.5/24", interface: 0 }],
  routes: [],
  dns: {},
};

test("derive: unknown keys stay, capabilities go, name and version come in", () => {
  assert.deepEqual(deriveConfig(plugin, { name: "blue", cniVersion: "1.0.0" }), {
    type: "bridge",
    bridge: "b0",
    "x-own": [1],
    name: "blue",
    cniVersion: "1.0.0",
  });
});

test("derive: what the plugin object itself says of name, version and prevResult is replaced", () => {
  const own = { ...plugin, name: "old", cniVersion: "0.1.0", prevResult: { ips: [] } };
  const config = deriveConfig(own, { name: "blue", cniVersion: "0.4.0" });
  assert.deepEqual(
    [config["name"], config["cniVersion"], "prevResult" in config],
    ["blue", "0.4.0", false],
  );
});

test("derive: prevResult is written in the configuration's version", () => {
  const at = (cniVersion: "0.4.0" | "1.0.0" | "1.1.0") =>
    deriveConfig(plugin, { name: "n", cniVersion, prevResult })["prevResult"];
  assert.deepEqual(at("0.4.0"), {
    cniVersion: "0.4.0",
    interfaces: [{ name: "eth0" }],
    ips: [{ version: "4", address: "10.1.0.5/24", interface: 0 }],
  });
  assert.deepEqual(at("1.0.0"), {
    cniVersion: "1.0.0",
    interfaces: [{ name: "eth0" }],
    ips: [{ address: "10.1.0.5/24", interface: 0 }],
  });
  assert.deepEqual(at("1.1.0"), {
    cniVersion: "1.1.0",
    interfaces: prevResult.interfaces,
    ips: prevResult.ips,
  });
});

test("derive: runtimeConfig is what was given and the plugin declares", () => {
  const given = { ips: ["10.1.0.9/24"], mac: "02:00:00:00:00:01", bandwidth: {}, toString: 1 };
  assert.deepEqual(runtimeConfigFor(plugin, given), { ips: ["10.1.0.9/24"] });
  assert.deepEqual(runtimeConfigFor({ type: "a" }, given), {});
  const config = deriveConfig(plugin, {
    name: "n",
    cniVersion: "1.0.0",
    runtimeConfig: { ips: ["x"] },
  });
  assert.deepEqual(config["runtimeConfig"], { ips: ["x"] });
});

test("derive: capabilities that no plugin of the chain declares are listed", () => {
  const list = decodeConflist(
    '{"name":"n","plugins":[{"type":"a","capabilities":{"ips":true,"mac":false}},{"type":"b","capabilities":{"portMappings":true}}]}',
  );
  const given = { ips: [], mac: "x", portMappings: [], constructor: 1 };
  assert.deepEqual(undeclaredCapabilities(list, given), ["mac", "constructor"]);
});

test("derive: cni-args go into args.cni and win over the configuration's", () => {
  const own = { type: "a", args: { other: 1, cni: { a: 1, b: 1 } } };
  assert.deepEqual(mergeCniArgs(own, { b: 2, c: 3 })["args"], {
    other: 1,
    cni: { a: 1, b: 2, c: 3 },
  });
  assert.deepEqual(mergeCniArgs({ type: "a" }, { b: 2 })["args"], { cni: { b: 2 } });
  assert.equal(mergeCniArgs(own, undefined), own);
  assert.deepEqual(own.args.cni, { a: 1, b: 1 });
});

test("derive: GC gets the valid attachments under both names", () => {
  const valid = [{ containerID: "c", ifname: "eth0" }];
  const config = deriveConfig(plugin, { name: "n", cniVersion: "1.1.0", validAttachments: valid });
  assert.deepEqual(config["cni.dev/valid-attachments"], valid);
  assert.deepEqual(config["cni.dev/attachments"], valid);
});

test("derive: an empty list of valid attachments is said, not left out", () => {
  const config = deriveConfig(plugin, { name: "n", cniVersion: "1.1.0", validAttachments: [] });
  assert.deepEqual(config["cni.dev/valid-attachments"], []);
});
