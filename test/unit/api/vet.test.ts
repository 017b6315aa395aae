import assert from "node:assert/strict";
import { test } from "node:test";
import { readHostLocalConfig } from "../../../daemon/ipam/host-local-config.ts";
import { readBridgeConfig } from "../../../daemon/plugins/bridge/config.ts";
import { inProcessPlugins } from "../../../daemon/plugins/registry.ts";
import { fixedAddresses } from "../../../lib/api/fixed-addresses.ts";
import { providers } from "../../../lib/api/names.ts";
import type { PodNetwork } from "../../../lib/api/objects.ts";
import { isOwnType } from "../../../lib/api/vet-keys.ts";
import { pluginsOf, vetNetwork } from "../../../lib/api/vet-network.ts";
import { formatFault } from "../../../lib/base/decode.ts";
import type { JsonObject } from "../../../lib/base/json.ts";

function vet(parameters: JsonObject, spec: Partial<PodNetwork["spec"]> = {}, name = "blue") {
  const network = {
    metadata: { name, labels: {}, annotations: {} },
    spec: { enabled: true, provider: providers.cni, parametersRefs: [], parameters, ...spec },
  };
  const { faults, warnings } = vetNetwork(network, pluginsOf(parameters, "spec.parameters"));
  return { faults: faults.map(formatFault), warnings: warnings.map(formatFault) };
}

const hostLocal = (...subnets: string[]): JsonObject => ({
  type: "host-local",
  ranges: subnets.map((subnet) => [{ subnet }]),
});

test("every type that podnetd has in process is known", () => {
  for (const type of inProcessPlugins.keys()) assert.ok(isOwnType(type), type);
});

test("sound parameters have neither faults nor warnings", () => {
  const chain = {
    plugins: [
      {
        type: "bridge",
        bridge: "b",
        isGateway: true,
        mtu: 1400,
        ipam: hostLocal("10.1.0.0/24", "fd00::/64"),
      },
      {
        type: "tuning",
        sysctl: { "net.ipv4.conf.all.forwarding": "1" },
        capabilities: { mac: true },
      },
      { type: "portmap", snat: true, capabilities: { portMappings: true } },
    ],
  };
  assert.deepEqual(vet(chain, { ipam4: "external", ipam6: "external" }), {
    faults: [],
    warnings: [],
  });
  const absent = { type: "macvlan", master: null, mode: "", ipam: {} };
  assert.deepEqual(vet(absent), { faults: [], warnings: [] });
});

test("what podnetd itself refuses is refused", () => {
  const wrong: readonly JsonObject[] = [
    { mtu: "x" },
    { isGateway: "yes" },
    { vlanTrunk: 5 },
    { bridge: 5 },
  ];
  for (const keys of wrong) {
    const config = { type: "bridge", name: "n", cniVersion: "1.1.0", ...keys };
    const call = { network: "n", config, runtimeConfig: {}, cniArgs: new Map() };
    assert.throws(() =>
      readBridgeConfig(call as unknown as Parameters<typeof readBridgeConfig>[0]),
    );
    assert.equal(vet({ type: "bridge", ...keys }).faults.length, 1, JSON.stringify(keys));
  }
  const ranges: readonly JsonObject[] = [
    hostLocal("10.1.0.5/24"),
    hostLocal("10.1.0.0/24", "10.1.0.128/25"),
    hostLocal("10.1.0.0/31"),
    { type: "host-local" },
    { type: "host-local", ranges: [[{ subnet: "10.1.0.0/24", rangeStart: "10.2.0.1" }]] },
    { type: "host-local", ranges: [[{ subnet: "10.1.0.0/24" }, { subnet: "fd00::/64" }]] },
    { type: "host-local", ranges: [[]] },
  ];
  for (const ipam of ranges) {
    const call = { network: "n", config: { ipam }, runtimeConfig: {}, cniArgs: new Map() };
    assert.throws(
      () => readHostLocalConfig(call as unknown as Parameters<typeof readHostLocalConfig>[0]),
      JSON.stringify(ipam),
    );
    assert.equal(vet({ type: "macvlan", ipam }).faults.length, 1, JSON.stringify(ipam));
  }
});

test("unknown keys, types and subnets that only touch are warnings, with what was probably meant", () => {
  assert.deepEqual(vet({ type: "bridge", isGatewy: true }).warnings, [
    'spec.parameters: unknown key "isGatewy": did you mean "isGateway"?',
  ]);
  assert.match(
    vet({ type: "calico", anything: 5 }).warnings.join(),
    /"calico" is no type of podnet's own/,
  );
  const halves = [
    [{ subnet: "10.1.0.0/24", rangeEnd: "10.1.0.99" }],
    [{ subnet: "10.1.0.0/24", rangeStart: "10.1.0.100" }],
  ];
  const { faults, warnings } = vet({
    type: "macvlan",
    ipam: { type: "host-local", ranges: halves },
  });
  assert.deepEqual([faults, warnings.length], [[], 1]);
});

test("plugins that need another before them, and podnet itself, can't be first", () => {
  assert.match(vet({ type: "tuning" }).faults.join(), /a plugin before it must make/);
  assert.match(vet({ type: "podnet" }).faults.join(), /can't delegate to itself/);
  assert.match(vet({ type: "vlan", vlanId: 5 }).faults.join(), /spec\.parameters\.master: missing/);
});

test("ipam4 and ipam6 are held against the ranges, where these are all that counts", () => {
  const v4 = { type: "macvlan", ipam: hostLocal("10.1.0.0/24") };
  assert.match(
    vet(v4, { ipam6: "external" }).faults.join(),
    /spec\.ipam6: "external" promises an IPv6/,
  );
  assert.match(vet(v4, { ipam4: "none" }).faults.join(), /spec\.ipam4: "none" excludes/);
  assert.deepEqual(vet({ ...v4, capabilities: { ips: true } }, { ipam6: "external" }).faults, []);
  const chain = { plugins: [v4, { type: "acme" }] };
  assert.deepEqual(vet(chain, { ipam6: "external" }).faults, []);
  assert.match(vet(v4, { ipam4: "kubernetes" }).faults.join(), /for the PodNetwork "default" only/);
  assert.match(vet(v4, { ipam4: "kubernetes" }, "default").faults.join(), /has one of its own/);
  const open = { type: "macvlan", ipam: { type: "host-local" } };
  assert.deepEqual(vet(open, { ipam4: "kubernetes" }, "default").faults, []);
});

test("fixed addresses are found wherever a configuration may have them", () => {
  assert.deepEqual(
    fixedAddresses([
      {
        type: "macvlan",
        mac: "02:00:00:00:00:01",
        ipam: { type: "static", addresses: [{ address: "10.0.0.5/24" }] },
      },
      { type: "tuning", args: { cni: { mac: "02:00:00:00:00:02", ips: ["fd00::5", 7] } } },
      { type: "bridge", mac: "not its key", ipam: hostLocal("10.1.0.0/24") },
    ]),
    ["02:00:00:00:00:01", "10.0.0.5/24", "02:00:00:00:00:02", "fd00::5"],
  );
});
