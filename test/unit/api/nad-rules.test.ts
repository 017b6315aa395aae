import assert from "node:assert/strict";
import { test } from "node:test";
import { nadFaults } from "../../../lib/api/nad-rules.ts";
import type { JsonObject } from "../../../lib/base/json.ts";

const rules = {
  nadTypes: ["bridge", "tuning", "macvlan", "host-local"],
  nadDevices: ["br-*", "eth1"],
  nadPaths: ["/var/lib/cni/tenants"],
  nadSysctls: ["net.ipv4.*"],
};

function paths(...plugins: readonly JsonObject[]): string[] {
  return nadFaults(plugins, rules).map(({ path }) => path);
}

test("an ordinary configuration passes", () => {
  const ipam = {
    type: "host-local",
    dataDir: "/var/lib/cni/tenants/a",
    ranges: [[{ subnet: "10.0.0.0/24", gateway: "10.0.0.1" }]],
    routes: [{ dst: "0.0.0.0/0" }],
  };
  const tuning = { type: "tuning", sysctl: { "net.ipv4.ip_forward": "1", "net/ipv4/x": "1" } };
  assert.deepEqual(paths({ type: "bridge", bridge: "br-blue", ipam }, tuning), []);
});

test("types are allow-listed, address management included", () => {
  assert.deepEqual(paths({ type: "host-device" }, { type: "bridge", ipam: { type: "evil" } }), [
    "plugins[0].type",
    "plugins[1].ipam.type",
  ]);
});

test("devices of the node are confined to what is listed; none is taken", () => {
  assert.deepEqual(
    paths(
      { type: "macvlan", master: "eth0" },
      { type: "bridge", bridge: "cni0" },
      { type: "macvlan", device: "eth1", deviceID: "0000:00:01.0" },
    ),
    ["plugins[0].master", "plugins[1].bridge", "plugins[2].device", "plugins[2].deviceID"],
  );
});

test("declaring that a device may be given takes none", () => {
  const capabilities = { deviceID: true, mac: true };
  assert.deepEqual(paths({ type: "macvlan", capabilities }), []);
  const runtimeConfig = { deviceID: "0000:00:01.0" };
  assert.deepEqual(paths({ type: "macvlan", capabilities, runtimeConfig }), [
    "plugins[0].runtimeConfig.deviceID",
  ]);
});

test("paths are confined wherever they stand", () => {
  assert.deepEqual(
    paths({
      type: "bridge",
      logFile: "/etc/shadow",
      ipam: { type: "host-local", dataDir: "/var/lib/cni/tenants/../../x", resolvConf: "../x" },
      args: { list: ["/x", { deep: "/var/lib/cni/tenants-not" }] },
    }),
    [
      "plugins[0].logFile",
      "plugins[0].ipam.dataDir",
      "plugins[0].ipam.resolvConf",
      "plugins[0].args.list[0]",
      "plugins[0].args.list[1].deep",
    ],
  );
});

test("sysctls are confined", () => {
  const sysctl = { "kernel.core_pattern": "|x", "net.ipv4.conf.all.rp_filter": "1" };
  assert.deepEqual(paths({ type: "tuning", sysctl }), ["plugins[0].sysctl"]);
});
