import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "yaml";
import { ApiServer, type KubectlAnswer } from "../../helpers/apiserver.ts";
import { Lab } from "../../helpers/lab.ts";
import { part } from "../../helpers/parts.ts";
import { RunningProgram } from "../../helpers/process.ts";

/** The CRDs with their rules in CEL on a current API server for custom resources; an older one beside it knows the users. */

const stack = new AsyncDisposableStack();
let api: ApiServer;
let kubeconfig: string;

function kubectl(input: object | undefined, ...args: string[]): KubectlAnswer {
  const text = input === undefined ? "" : JSON.stringify(input);
  return api.kubectlInput(text, `--kubeconfig=${kubeconfig}`, ...args);
}

before(async () => {
  const program = part("apiextensions");
  const lab = stack.use(new Lab());
  api = stack.use(await ApiServer.start(lab, lab.node()));
  const admin = api.kubeconfig("admin");
  const server = new RunningProgram("apiextensions-apiserver", api.node, [
    program,
    `--etcd-servers=${api.etcd}`,
    "--etcd-prefix=/current",
    "--bind-address=127.0.0.1",
    "--secure-port=7443",
    `--cert-dir=${lab.folder()}`,
    `--kubeconfig=${admin}`,
    `--authentication-kubeconfig=${admin}`,
    `--authorization-kubeconfig=${admin}`,
    "--authentication-skip-lookup",
    "--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook",
    "--enable-priority-and-fairness=false",
  ]);
  stack.defer(() => server.stop(5));
  kubeconfig = api.writeKubeconfig("current", {
    cluster: { server: "https://127.0.0.1:7443", "insecure-skip-tls-verify": true },
    user: { token: "admin-token" },
  });
  const until = Date.now() + 120_000;
  while (kubectl(undefined, "get", "--raw", "/readyz").status !== 0) {
    server.mustRun();
    if (Date.now() > until) throw new Error(`not ready:\n${server.output.slice(-6000)}`);
    await sleep(300);
  }
  for (const name of ["podnetworks", "podnetworkattachments", "network-attachment-definitions"]) {
    const crd = parse(readFileSync(`conf/crds/${name}.yaml`, "utf8"));
    const made = kubectl(crd, "create", "--validate=false", "-f", "-");
    assert.equal(made.status, 0, made.stderr);
    const wait = kubectl(
      undefined,
      "wait",
      "--for=condition=Established",
      "--timeout=30s",
      `crd/${crd.metadata.name}`,
    );
    assert.equal(wait.status, 0, wait.stderr);
  }
});
after(() => stack.disposeAsync());

function create(kind: string, name: string, spec: object): string {
  const metadata = kind === "PodNetworkAttachment" ? { name, namespace: "default" } : { name };
  const object = { apiVersion: "podnet.dev/v1alpha1", kind, metadata, spec };
  const answer = kubectl(object, "create", "--validate=false", "-f", "-");
  return answer.status === 0 ? "accepted" : answer.stderr;
}

/** `target`: KIND/NAME. */
function patch(target: string, spec: object, type = "merge"): string {
  const text = JSON.stringify(type === "merge" ? { spec } : spec);
  const answer = kubectl(undefined, "patch", target, `--type=${type}`, "-p", text);
  return answer.status === 0 ? "accepted" : answer.stderr;
}

test("the CRDs are accepted without a word about their schemas or rules", () => {
  for (const name of ["podnetworks.podnet.dev", "podnetworkattachments.podnet.dev"]) {
    const { status, stdout } = kubectl(undefined, "get", "crd", name, "-o", "json");
    assert.equal(status, 0);
    const conditions: { type: string; status: string }[] = JSON.parse(stdout).status.conditions;
    const bad = conditions.filter((one) => one.type === "NonStructuralSchema");
    assert.deepEqual(bad, []);
  }
});

test("a PodNetwork's spec can't be changed, optional fields that come or go included; enabled can", () => {
  const spec = {
    provider: "acme.io/x",
    parameters: { type: "bridge", mtu: 1400 },
    ipam4: "external",
  };
  assert.equal(create("PodNetwork", "full", spec), "accepted");
  assert.equal(create("PodNetwork", "bare", {}), "accepted");
  const ref = { group: "g", kind: "K", name: "n" };
  const refused: readonly [string, object, RegExp][] = [
    ["full", { provider: "acme.io/y" }, /spec\.provider is immutable/],
    ["full", { provider: null }, /spec\.provider is immutable/],
    ["bare", { provider: "acme.io/x" }, /spec\.provider is immutable/],
    ["full", { parameters: { mtu: 1500 } }, /spec\.parameters is immutable/],
    ["full", { parameters: { more: 1 } }, /spec\.parameters is immutable/],
    ["full", { parameters: null }, /spec\.parameters is immutable/],
    ["bare", { parameters: { type: "bridge" } }, /spec\.parameters is immutable/],
    ["bare", { parametersRefs: [ref] }, /spec\.parametersRefs is immutable/],
    ["full", { ipam4: "none" }, /spec\.ipam4 is immutable/],
    ["full", { ipam4: null }, /spec\.ipam4 is immutable/],
    ["bare", { ipam6: "none" }, /spec\.ipam6 is immutable/],
  ];
  for (const [name, change, message] of refused)
    assert.match(patch(`podnetwork/${name}`, change), message, `${name} ${JSON.stringify(change)}`);
  assert.equal(patch("podnetwork/full", { enabled: false }), "accepted");
  assert.equal(kubectl(undefined, "label", "podnetwork", "full", "x=y").status, 0);
});

test("a key of parameters that is given another name is a change too", () => {
  assert.equal(
    create("PodNetwork", "renamed", { parameters: { type: "bridge", a: 1 } }),
    "accepted",
  );
  const rename = [{ op: "move", from: "/spec/parameters/a", path: "/spec/parameters/b" }];
  assert.match(patch("podnetwork/renamed", rename, "json"), /spec\.parameters is immutable/);
});

test("a PodNetworkAttachment's spec can't be changed at all", () => {
  assert.equal(create("PodNetworkAttachment", "fast", { podNetworkName: "blue" }), "accepted");
  const refs = { parametersRefs: [{ group: "g", kind: "K", name: "n" }] };
  for (const change of [{ podNetworkName: "red" }, refs])
    assert.match(patch("podnetworkattachment/fast", change), /spec is immutable/);
});

test("providers follow the pattern (E-10)", () => {
  for (const provider of [
    "acme",
    "ACME.io/x",
    "http://acme.io/x",
    "",
    `acme.io/${"x".repeat(246)}`,
  ])
    assert.match(create("PodNetwork", "wrong", { provider }), /spec\.provider/, provider);
});
