import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { askedWebhooks, type ChainRequest, policyRefusals } from "../../helpers/admission-chain.ts";

/** Which requests podnet's webhooks and policies have a say in, by the rules of an API server. */

// biome-ignore lint/suspicious/noExplicitAny: manifests are looked into
type Manifest = any;

const read = (pattern: string): Manifest[] =>
  globSync(pattern).flatMap((file) =>
    parseAllDocuments(readFileSync(file, "utf8")).map((one) => one.toJS()),
  );
const webhooks = read("conf/kustomize/webhook/*ing.yaml");
const legacy = [...webhooks, ...read("conf/kustomize/webhook/legacy/default-network.yaml")];
const policies = read("conf/kustomize/controller/current/default-network.yaml");

const request = (resource: string, operation: ChainRequest["operation"], more: object) => ({
  ...{ operation, group: "podnet.dev", version: "v1alpha1", resource },
  ...more,
});
const inApp = { namespace: "app", labels: { "kubernetes.io/metadata.name": "app" } };

test("default can't be deleted by its name, nor with all others; the controller's other work is not looked at", () => {
  const named = (name: string) => ({ metadata: { name } });
  const deletion = (oldObject: object, name = "") =>
    request("podnetworks", "DELETE", { name, oldObject });
  for (const name of ["default", ""]) {
    assert.match(
      policyRefusals(policies, deletion(named("default"), name)).join(),
      /^PodNetwork "default" can't be deleted: .+/,
    );
  }
  assert.deepEqual(policyRefusals(policies, deletion(named("blue"), "blue")), []);
  // A request's name that is not the object's would be a way round.
  assert.deepEqual(policyRefusals(policies, deletion(named("blue"), "default")), []);
  for (const operation of ["CREATE", "UPDATE"] as const) {
    const other = request("podnetworks", operation, { oldObject: named("default") });
    assert.deepEqual(policyRefusals(policies, other), []);
  }
  assert.deepEqual(askedWebhooks(legacy, deletion(named("default"))), [
    "default-network.podnet.dev /validate",
  ]);
  assert.deepEqual(
    askedWebhooks(webhooks, deletion(named("default"))),
    [],
    "the policy's business",
  );
});

test("each kind is asked about where it is written, and nowhere else", () => {
  const pods = (operation: ChainRequest["operation"], more: object = inApp) =>
    askedWebhooks(legacy, { operation, group: "", version: "v1", resource: "pods", ...more });
  assert.deepEqual(pods("CREATE"), ["pods.podnet.dev /mutate", "pods.podnet.dev /validate"]);
  assert.deepEqual(pods("UPDATE"), ["pods.podnet.dev /validate"]);
  assert.deepEqual(pods("DELETE"), []);
  assert.deepEqual(pods("UPDATE", { ...inApp, resource: "pods/status" }), []);
  assert.deepEqual(pods("CREATE", { ...inApp, resource: "pods/binding" }), []);
  for (const name of ["kube-system", "kube-public", "kube-node-lease", "podnet-system"]) {
    const namespace = { namespace: name, labels: { "kubernetes.io/metadata.name": name } };
    assert.deepEqual(pods("CREATE", namespace), [], name);
  }
  const out = { ...inApp, labels: { ...inApp.labels, "podnet.dev/admission": "off" } };
  assert.deepEqual(pods("CREATE", out), []);
  const networks = (resource: string, operation: ChainRequest["operation"], more: object = {}) =>
    askedWebhooks(legacy, {
      ...{ operation, group: "podnet.dev", version: "v1alpha1", resource },
      ...more,
    }).toSorted();
  const both = ["networks.podnet.dev /mutate", "networks.podnet.dev /validate"];
  assert.deepEqual(networks("podnetworks", "CREATE"), both);
  assert.deepEqual(networks("podnetworkattachments", "CREATE", out), both, "in every namespace");
  assert.deepEqual(networks("podnetworks", "UPDATE"), ["networks.podnet.dev /validate"]);
  for (const resource of ["podnetworks/status", "podnetworkattachments/status"])
    assert.deepEqual(networks(resource, "UPDATE"), [], "conditions");
  const nads = (operation: ChainRequest["operation"], more: object = inApp) =>
    networks("network-attachment-definitions", operation, {
      ...{ group: "k8s.cni.cncf.io", version: "v1" },
      ...more,
    });
  for (const operation of ["CREATE", "UPDATE"] as const)
    assert.deepEqual(nads(operation), ["nads.podnet.dev /validate"]);
  assert.deepEqual(nads("DELETE"), []);
  assert.deepEqual(nads("CREATE", out), []);
});

test("no webhook can stop anything: each is ignored when it fails, soon, and changes nothing beside its answer", () => {
  const all = legacy.flatMap(({ webhooks: some }) => some);
  assert.equal(all.length, 6);
  for (const one of all) {
    assert.equal(one.failurePolicy, "Ignore", one.name);
    assert.equal(one.sideEffects, "None", one.name);
    assert.ok(one.timeoutSeconds <= 3, one.name);
    assert.deepEqual(one.admissionReviewVersions, ["v1"], one.name);
  }
});
