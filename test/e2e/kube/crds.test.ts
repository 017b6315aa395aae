import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Cluster } from "../../helpers/cluster.ts";

/** The legacy CRDs on an API server of 1.20, which has no CEL. */

let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start();
});
after(() => cluster?.[Symbol.asyncDispose]());

function podNetwork(name: string, spec: object): object {
  return { apiVersion: "podnet.dev/v1alpha1", kind: "PodNetwork", metadata: { name }, spec };
}

function create(object: object): string {
  const answer = cluster.api.kubectlInput(JSON.stringify(object), "create", "-f", "-");
  return answer.status === 0 ? "accepted" : answer.stderr;
}

test("enabled is true unless it says otherwise, and false is stored", () => {
  assert.equal(create(podNetwork("on", {})), "accepted");
  assert.equal(create(podNetwork("off", { enabled: false })), "accepted");
  assert.equal(cluster.api.get("pnet", "on").spec.enabled, true);
  assert.equal(cluster.api.get("pnet", "off").spec.enabled, false);
});

test("providers follow the pattern (E-10)", () => {
  assert.equal(create(podNetwork("p1", { provider: "acme.io/foo" })), "accepted");
  const wrong = ["acme", "ACME.io/x", "http://acme.io/x", "", `acme.io/${"x".repeat(246)}`];
  for (const [index, provider] of wrong.entries())
    assert.match(create(podNetwork(`w${index}`, { provider })), /spec\.provider/, provider);
});

test("parameters keep keys that the schema does not know; other keys of the spec are dropped or refused", () => {
  const parameters = { type: "bridge", acme: { deep: [1, { x: true }] } };
  assert.equal(create(podNetwork("deep", { parameters })), "accepted");
  assert.deepEqual(cluster.api.get("pnet", "deep").spec.parameters, parameters);
  assert.match(create(podNetwork("typo", { paramters: {} })), /unknown field "paramters"/);
  assert.match(create(podNetwork("mode", { ipam4: "dhcp" })), /ipam4/);
  assert.match(create(podNetwork("refs", { parametersRefs: [{ kind: "x" }] })), /group|name/);
});

test("the status is a part of its own", () => {
  assert.equal(create(podNetwork("st", { provider: "acme.io/foo" })), "accepted");
  const patch = JSON.stringify({
    status: {
      conditions: [
        {
          type: "Ready",
          status: "True",
          reason: "Ready",
          message: "",
          lastTransitionTime: "2026-01-01T00:00:00Z",
        },
      ],
    },
  });
  cluster.api.must("patch", "pnet", "st", "--type=merge", "-p", patch);
  assert.equal(cluster.api.get("pnet", "st").status, undefined);
});

test("kubectl get shows the columns, by every name of the kind", () => {
  for (const name of ["pnet", "podnetworks", "podnetwork.podnet.dev"]) {
    const [head = "", ...rows] = cluster.api.must("get", name).trim().split("\n");
    assert.match(head, /^NAME +READY +PROVIDER +TYPE +IN USE +AGE$/);
    assert.ok(
      rows.some((row) => /^blue .* bridge /.test(row)),
      rows.join("\n"),
    );
  }
  const wide = cluster.api.must("get", "pnet", "blue", "-o", "wide");
  assert.match(wide, /MASTER +SUBNET/);
  assert.match(wide, /10\.10\.0\.0\/16/);
  assert.match(cluster.api.must("get", "podnet", "-A"), /blue/);
});

test("an attachment object needs its PodNetwork's name; a NAD may have no configuration", () => {
  const attachment = (spec: object) => ({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace: "app", name: "fast" },
    spec,
  });
  assert.match(create(attachment({})), /podNetworkName/);
  assert.equal(create(attachment({ podNetworkName: "blue" })), "accepted");
  assert.match(cluster.api.must("get", "pna", "-n", "app"), /NAME +READY +NETWORK +IN USE +AGE/);
  const nad = { apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition" };
  assert.equal(create({ ...nad, metadata: { namespace: "app", name: "empty" } }), "accepted");
});

test("the published example manifests are accepted after changing the apiVersion only, and the samples as they are", () => {
  const ready = {
    type: "Ready",
    status: "True",
    lastProbeTime: null,
    lastTransitionTime: "2025-01-31T18:38:01Z",
  };
  const published = [
    podNetwork("pub-1", {
      provider: "podnetwork.example.com",
      enabled: true,
      parameters: { name: "dummy0" },
    }),
    {
      ...podNetwork("pub-2", { provider: "foo.io/bar", enabled: true }),
      status: { conditions: [ready] },
    },
    podNetwork("pub-3", {
      provider: "example.dra.x-k8s.io/network",
      enabled: true,
      parameters: { master: "eth0", mode: "bridge", ipam: { type: "host-local" } },
    }),
  ];
  for (const manifest of published) assert.equal(create(manifest), "accepted");
  cluster.api.must("delete", "pnet", "blue", "default");
  for (const file of ["blue", "red", "default", "pod"])
    cluster.api.must("apply", "-f", `conf/samples/${file}.yaml`);
});
