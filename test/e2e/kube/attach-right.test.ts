import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Cluster, nodeName, type TestPod } from "../../helpers/cluster.ts";

/** The right to attach on the node, where there is no webhook to ask before: podnetd asks the API server itself. */

let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start();
  const vault = cluster.podNetwork("vault", cluster.bridge("vault", "10.20.0.0/16"), {
    "podnet.dev/access": "attach",
  });
  const behind = {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace: "app", name: "behind" },
    spec: { podNetworkName: "vault" },
  };
  cluster.api.apply(vault, behind);
  await cluster.startDaemon(cluster.api.kubeconfig("podnet"));
});
after(() => cluster?.[Symbol.asyncDispose]());

function podOf(name: string, networks: string, serviceAccountName: string): TestPod {
  cluster.api.apply({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "app", name, annotations: { "podnet.dev/networks": networks } },
    spec: { nodeName, serviceAccountName, containers: [{ name: "c", image: "none" }] },
  });
  const { uid } = cluster.api.get("pod", "-n", "app", name).metadata;
  return { namespace: "app", name, uid, place: cluster.lab.pod() };
}

const bind = (...names: string[]) => {
  const rbac = { apiVersion: "rbac.authorization.k8s.io/v1" };
  const rule = {
    apiGroups: ["podnet.dev"],
    resources: ["podnetworks"],
    resourceNames: ["vault"],
    verbs: ["attach"],
  };
  cluster.api.apply(
    { ...rbac, kind: "ClusterRole", metadata: { name: "vault" }, rules: [rule] },
    {
      ...rbac,
      kind: "ClusterRoleBinding",
      metadata: { name: "vault" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "vault" },
      subjects: names.map((name) => ({ kind: "ServiceAccount", namespace: "app", name })),
    },
  );
};

test("ADD is refused with code 104 to a service account without the right, behind an attachment too, and attached with it", async () => {
  bind("web");
  const lists = ['[{"name":"vault"}]', '[{"attachmentName":"behind"}]'];
  for (const [place, list] of lists.entries()) {
    const refused = await cluster.run("ADD", podOf(`no-${place}`, list, "default"));
    assert.equal(refused.json.code, 104, refused.stdout);
    assert.match(
      refused.json.msg,
      /PodNetwork "vault": service account "app\/default" may not attach pods to it/,
    );
    const result = await cluster.must("ADD", podOf(`yes-${place}`, list, "web"));
    assert.match(result.ips[0].address, /^10\.20\./);
  }
});

test("a right that was taken away counts for the next pod, not for the one that runs", async () => {
  const runs = podOf("runs", '[{"name":"vault"}]', "web");
  await cluster.must("ADD", runs);
  bind("other");
  await cluster.eventually(async () => {
    const name = `late-${Math.random().toString(36).slice(2, 8)}`;
    const { json } = await cluster.run("ADD", podOf(name, '[{"name":"vault"}]', "web"));
    return json?.code === 104 ? true : undefined;
  }, "the right is gone");
  await cluster.must("CHECK", runs);
});
