import assert from "node:assert/strict";
import { test } from "node:test";
import { effectiveScope, mergeResults } from "../../../daemon/node/merge.ts";
import { type CniResult, emptyResult } from "../../../lib/cni/types.ts";

const sandbox = "/run/netns/x";
const bridge = (name: string, octet: number): CniResult => ({
  interfaces: [
    { name: `br-${name}`, mac: "02:00:00:00:00:01" },
    { name: `veth${octet}` },
    { name, sandbox, mtu: 1500 },
  ],
  ips: [{ address: `10.${octet}.0.2/24`, gateway: `10.${octet}.0.1`, interface: 2 }],
  routes: [{ dst: `10.${octet}.0.0/16` }],
  dns: { nameservers: [`10.${octet}.0.53`] },
});

test("merge: interfaces and addresses of all networks are tagged and indices follow", () => {
  const merged = mergeResults(
    [
      { network: "default", result: bridge("eth0", 1) },
      { network: "blue", result: bridge("net1", 2) },
      { network: "red", result: bridge("net2", 3) },
    ],
    "all",
  );
  assert.deepEqual(
    merged.interfaces.map(({ name, podNetwork }) => `${podNetwork}:${name}`),
    [
      "default:br-eth0",
      "default:veth1",
      "default:eth0",
      "blue:br-net1",
      "blue:veth2",
      "blue:net1",
      "red:br-net2",
      "red:veth3",
      "red:net2",
    ],
  );
  assert.deepEqual(
    merged.ips.map((ip) => [
      ip.podNetwork,
      ip.address,
      merged.interfaces[ip.interface ?? -1]?.name,
    ]),
    [
      ["default", "10.1.0.2/24", "eth0"],
      ["blue", "10.2.0.2/24", "net1"],
      ["red", "10.3.0.2/24", "net2"],
    ],
  );
  assert.deepEqual(merged.routes, [
    { dst: "10.1.0.0/16" },
    { dst: "10.2.0.0/16" },
    { dst: "10.3.0.0/16" },
  ]);
  assert.deepEqual(merged.dns, { nameservers: ["10.1.0.53"] });
});

test("merge: an address without interface stays without one", () => {
  const lone: CniResult = {
    ...emptyResult,
    ips: [{ address: "10.9.0.2/24" }, { address: "fd00::2/64", interface: -1 }],
  };
  const { ips } = mergeResults(
    [
      { network: "a", result: bridge("eth0", 1) },
      { network: "b", result: lone },
      { network: "c", result: bridge("net2", 3) },
    ],
    "all",
  );
  assert.deepEqual(
    ips.map((ip) => ip.interface),
    [2, undefined, undefined, 5],
  );
  assert.ok(ips.slice(1, 3).every((ip) => !("interface" in ip)));
});

test("merge: only host-side interfaces, or none at all, leave the sum right", () => {
  const hostOnly: CniResult = { ...emptyResult, interfaces: [{ name: "tap0" }] };
  const merged = mergeResults(
    [
      { network: "a", result: hostOnly },
      { network: "b", result: emptyResult },
      { network: "c", result: bridge("net2", 3) },
    ],
    "all",
  );
  assert.equal(merged.interfaces[merged.ips[0]?.interface ?? -1]?.name, "net2");
  assert.deepEqual(merged.dns, {});
});

test("merge: scope default answers with the first network alone, tagged", () => {
  const parts = [
    { network: "default", result: bridge("eth0", 1) },
    { network: "blue", result: bridge("net1", 2) },
  ];
  assert.deepEqual(mergeResults(parts, "default"), mergeResults(parts.slice(0, 1), "all"));
  assert.deepEqual(mergeResults([], "all"), emptyResult);
});

test("merge: the inputs stay as they are", () => {
  const result = bridge("eth0", 1);
  const before = structuredClone(result);
  mergeResults(
    [
      { network: "a", result },
      { network: "b", result },
    ],
    "all",
  );
  assert.deepEqual(result, before);
});

const uuid = "5a1c7d3b-1a2b-4c3d-8e9f-0123456789ab";
const callers: readonly [string, string, boolean, "all" | "default"][] = [
  ["CRI-O", `/var/run/netns/${uuid}`, true, "default"],
  ["containerd", `/var/run/netns/cni-${uuid}`, true, "all"],
  ["podman", `/run/user/0/netns/netns-${uuid}`, false, "all"],
  ["a person", `/run/netns/${uuid}`, false, "all"],
];
for (const [caller, netnsPath, pod, expected] of callers) {
  test(`merge: scope auto means ${expected} for ${caller}`, () => {
    const args = new Map(pod ? [["K8S_POD_NAME", "web"]] : []);
    assert.equal(effectiveScope("auto", { netnsPath, args }), expected);
    assert.equal(effectiveScope("all", { netnsPath, args }), "all");
    assert.equal(effectiveScope("default", { netnsPath, args }), "default");
  });
}
