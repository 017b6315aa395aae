import assert from "node:assert/strict";
import { test } from "node:test";
import { conventionalKeys } from "../../../lib/cni/conventions.ts";

test("capability arguments, spelt as containerd does, get the names of the conventions", () => {
  const args = {
    portMappings: [{ HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "" }],
    bandwidth: { IngressRate: 1, IngressBurst: 2, EgressRate: 3, EgressBurst: 4 },
    ipRanges: [[{ Subnet: "10.0.0.0/24", RangeStart: "10.0.0.9", RangeEnd: "", Gateway: "" }]],
    dns: { Servers: ["10.0.0.1"], Searches: [], Options: [] },
  };
  assert.deepEqual(conventionalKeys(args), {
    portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp", hostIP: "" }],
    bandwidth: { ingressRate: 1, ingressBurst: 2, egressRate: 3, egressBurst: 4 },
    ipRanges: [[{ subnet: "10.0.0.0/24", rangeStart: "10.0.0.9", rangeEnd: "", gateway: "" }]],
    dns: { servers: ["10.0.0.1"], searches: [], options: [] },
  });
});

test("capability arguments, spelt as the conventions or of no convention, stay as they are", () => {
  const args = {
    portMappings: [{ hostPort: 1, HostPort: 2, Other: 3 }],
    "io.kubernetes.cri.pod-annotations": { HostPort: "x" },
    mac: "02:00:00:00:00:01",
    bandwidth: null,
    constructor: { HostPort: 1 },
  };
  const expected = { ...args, portMappings: [{ hostPort: 1, Other: 3 }] };
  assert.deepEqual(conventionalKeys(args), expected);
  assert.deepEqual(conventionalKeys(conventionalKeys(args)), expected);
});
