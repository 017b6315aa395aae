import assert from "node:assert/strict";
import { test } from "node:test";
import { keepPod } from "../../../daemon/controller/kept-pods.ts";
import { holdsDeleted, podRefs } from "../../../daemon/controller/pod-refs.ts";
import type { JsonObject } from "../../../lib/base/json.ts";

const pod = (
  annotations: JsonObject,
  more: { spec?: JsonObject; phase?: string; created?: string } = {},
) =>
  keepPod({
    metadata: { uid: "u", annotations, creationTimestamp: more.created ?? "2026-01-01T00:00:00Z" },
    spec: { nodeName: "n", ...more.spec },
    status: { phase: more.phase ?? "Running" },
  });
const list = (value: unknown) => ({ "podnet.dev/networks": JSON.stringify(value) });
const refs = (of: ReturnType<typeof pod>, own?: string) => {
  const { networks, attachments } = podRefs(of, "app", own);
  return [...networks, ...attachments];
};

test("a pod refers to what it lists, and to the default network where that plays a part", () => {
  assert.deepEqual(refs(pod({})), ["default"]);
  assert.deepEqual(refs(pod({}), "tenant"), ["tenant"]);
  assert.deepEqual(refs(pod(list([{ name: "a" }, { attachmentName: "b" }]))), ["a", "app/b"]);
  assert.deepEqual(refs(pod({ "k8s.v1.cni.cncf.io/networks": "infra/n" })), ["default"]);
  const override = { "v1.multus-cni.io/default-network": "kube-system/x" };
  assert.deepEqual(refs(pod(override)), []);
});

test("a pod that ended, or is on the node's network, refers to nothing; one that can't be read to what it got", () => {
  assert.deepEqual(refs(pod(list([{ name: "a" }]), { phase: "Failed" })), []);
  assert.deepEqual(refs(pod(list([{ name: "a" }]), { spec: { hostNetwork: true } })), []);
  assert.deepEqual(refs(pod({ "podnet.dev/networks": "{" })), []);
  const status = JSON.stringify([{ name: "blue" }, { name: "blue" }, { name: "app/nad" }, 5, {}]);
  assert.deepEqual(refs(pod({ "podnet.dev/networks": "{", "podnet.dev/network-status": status })), [
    "blue",
  ]);
});

test("whatever a pod is, it is kept", () => {
  for (const value of [
    {},
    { metadata: 5, spec: [], status: null },
    { metadata: { annotations: [1] } },
  ])
    assert.equal(keepPod(value as JsonObject).uid, "");
});

test("after the deletion, a pod holds what it may be attached to", () => {
  const deleted = "2026-01-01T00:00:10Z";
  const holds = (...of: Parameters<typeof pod>) => holdsDeleted(pod(...of), deleted);
  assert.equal(holds({}), true);
  assert.equal(holds({}, { phase: "Succeeded" }), false);
  assert.equal(holds({}, { phase: "Pending" }), true, "its node may be attaching it");
  assert.equal(holds({}, { phase: "Pending", created: deleted }), true, "the same second");
  assert.equal(holds({}, { phase: "Pending", created: "2026-01-01T00:00:11Z" }), false);
  assert.equal(holds({}, { created: "2026-01-01T00:00:11Z" }), true, "it runs");
  assert.equal(holds({}, { phase: "Pending", spec: { nodeName: "" } }), false);
  const status = { "podnet.dev/network-status": '[{"name":"blue"}]' };
  assert.equal(holds(status, { phase: "Pending", created: "2026-01-01T00:00:11Z" }), true);
});
