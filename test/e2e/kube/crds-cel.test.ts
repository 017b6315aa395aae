import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "yaml";
import { ApiServer } from "../../helpers/apiserver.ts";
import { CurrentApi } from "../../helpers/current-api.ts";
import { Lab } from "../../helpers/lab.ts";
import { policyCases, policyDefinition } from "../../helpers/policy-crd.ts";

/** The CRDs with their rules in CEL on a current API server for custom resources; an older one beside it knows the users. */

const stack = new AsyncDisposableStack();
let api: ApiServer;

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const networks = "/apis/podnet.dev/v1alpha1/podnetworks";
const attachments = "/apis/podnet.dev/v1alpha1/namespaces/default/podnetworkattachments";

const send = `
const [method, path, body] = process.argv.slice(1);
const headers = {authorization: "Bearer admin-token", "content-type": "application/json"};
const options = {host: "127.0.0.1", port: 7443, method, path, headers, rejectUnauthorized: false};
const request = require("node:https").request(options, (answer) => {
  answer.pipe(process.stdout);
  answer.on("end", () => { process.exitCode = answer.statusCode < 300 ? 0 : 1; });
});
request.on("error", (error) => { console.log(error.message); process.exitCode = 1; });
request.end(body);`;

interface Answer {
  readonly status: number | null;
  readonly stdout: string;
}

/** A request as it is: this server has no discovery, which kubectl starts with. */
function raw(method: "GET" | "POST" | "PUT", path: string, body?: object): Answer {
  const text = body === undefined ? [] : [JSON.stringify(body)];
  const command = api.node.wrap([process.execPath, "-e", send, method, path, ...text]);
  const [program = "", ...args] = command;
  const { status, stdout } = spawnSync(program, args, { encoding: "utf8" });
  return { status, stdout };
}

// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
function read(path: string): any {
  const { status, stdout } = raw("GET", path);
  assert.equal(status, 0, stdout);
  return JSON.parse(stdout);
}

before(async () => {
  const lab = stack.use(new Lab());
  api = stack.use(await ApiServer.start(lab, lab.node()));
  const isReady = () => raw("GET", "/readyz").status === 0;
  stack.use(await CurrentApi.start(lab, api, isReady));
  const until = Date.now() + 120_000;
  for (const name of ["podnetworks", "podnetworkattachments", "network-attachment-definitions"]) {
    const crd = parse(readFileSync(`conf/crds/${name}.yaml`, "utf8"));
    const made = raw("POST", crds, crd);
    assert.equal(made.status, 0, made.stdout);
    const path = `${crds}/${crd.metadata.name}`;
    while (!conditionsOf(path).includes("Established True")) {
      if (Date.now() > until) throw new Error(`${path}: ${conditionsOf(path).join(", ")}`);
      await sleep(100);
    }
  }
});
after(() => stack.disposeAsync());

/** `Established True` */
function conditionsOf(path: string): string[] {
  const { conditions = [] } = read(path).status ?? {};
  return conditions.map((one: { type: string; status: string }) => `${one.type} ${one.status}`);
}

function outcome({ status, stdout }: Answer): string {
  return status === 0 ? "accepted" : stdout;
}

function create(path: string, name: string, spec: object): string {
  const kind = path === networks ? "PodNetwork" : "PodNetworkAttachment";
  const object = { apiVersion: "podnet.dev/v1alpha1", kind, metadata: { name }, spec };
  return outcome(raw("POST", path, object));
}

/** Merges into the spec: keys with undefined go. */
function change(path: string, spec: object): string {
  const object = read(path);
  return outcome(raw("PUT", path, { ...object, spec: { ...object.spec, ...spec } }));
}

test("the CRDs are accepted without a word about their schemas or rules", () => {
  for (const name of ["podnetworks.podnet.dev", "podnetworkattachments.podnet.dev"])
    assert.deepEqual(conditionsOf(`${crds}/${name}`), ["NamesAccepted True", "Established True"]);
});

test("a PodNetwork's spec can't be changed, optional fields that come or go included; enabled can", () => {
  const spec = {
    provider: "acme.io/x",
    parameters: { type: "bridge", mtu: 1400 },
    ipam4: "external",
  };
  assert.equal(create(networks, "full", spec), "accepted");
  assert.equal(create(networks, "bare", {}), "accepted");
  const ref = { group: "g", kind: "K", name: "n" };
  const refused: readonly [string, object, RegExp][] = [
    ["full", { provider: "acme.io/y" }, /spec\.provider is immutable/],
    ["full", { provider: undefined }, /spec\.provider is immutable/],
    ["bare", { provider: "acme.io/x" }, /spec\.provider is immutable/],
    ["full", { parameters: { ...spec.parameters, mtu: 1500 } }, /spec\.parameters is immutable/],
    ["full", { parameters: { ...spec.parameters, more: 1 } }, /spec\.parameters is immutable/],
    ["full", { parameters: undefined }, /spec\.parameters is immutable/],
    ["bare", { parameters: { type: "bridge" } }, /spec\.parameters is immutable/],
    ["bare", { parametersRefs: [ref] }, /spec\.parametersRefs is immutable/],
    ["full", { ipam4: "none" }, /spec\.ipam4 is immutable/],
    ["full", { ipam4: undefined }, /spec\.ipam4 is immutable/],
    ["bare", { ipam6: "none" }, /spec\.ipam6 is immutable/],
  ];
  for (const [name, changed, message] of refused)
    assert.match(
      change(`${networks}/${name}`, changed),
      message,
      `${name} ${JSON.stringify(changed)}`,
    );
  assert.equal(change(`${networks}/full`, { enabled: false }), "accepted");
  assert.equal(read(`${networks}/full`).spec.enabled, false);
  const full = read(`${networks}/full`);
  const labelled = { ...full, metadata: { ...full.metadata, labels: { x: "y" } } };
  assert.equal(outcome(raw("PUT", `${networks}/full`, labelled)), "accepted");
});

test("a key of parameters that gives its place to another is a change too, where podnet knows one of them", () => {
  const before = { type: "bridge", mtu: 1400, acme: { deep: 1 } };
  assert.equal(create(networks, "renamed", { parameters: before }), "accepted");
  for (const parameters of [
    { type: "bridge", vlan: 1400, acme: { deep: 1 } },
    { type: "bridge", other: 1400, acme: { deep: 1 } },
    { type: "bridge", mtu: 1400, vlan: 5 },
    { type: "bridge", mtu: 1400, acme: { deeper: 1 } },
  ]) {
    const answer = change(`${networks}/renamed`, { parameters });
    assert.match(answer, /spec\.parameters is immutable/, JSON.stringify(parameters));
  }
});

test("a PodNetworkAttachment's spec can't be changed at all", () => {
  assert.equal(create(attachments, "fast", { podNetworkName: "blue" }), "accepted");
  const refs = { parametersRefs: [{ group: "g", kind: "K", name: "n" }] };
  for (const changed of [{ podNetworkName: "red" }, refs])
    assert.match(change(`${attachments}/fast`, changed), /spec is immutable/);
});

test("providers follow the pattern (E-10)", () => {
  for (const provider of [
    "acme",
    "ACME.io/x",
    "http://acme.io/x",
    "",
    `acme.io/${"x".repeat(246)}`,
  ])
    assert.match(create(networks, "wrong", { provider }), /spec\.provider/, provider);
});

test("the policy on a node's token: its own pods' status annotations, and nothing else of a pod", async () => {
  const made = raw(
    "POST",
    crds,
    policyDefinition("conf/kustomize/default/node-policy.yaml", "cases"),
  );
  assert.equal(made.status, 0, made.stdout);
  while (!conditionsOf(`${crds}/cases.policy.test`).includes("Established True")) await sleep(100);
  const own = "podnet.dev/network-status";
  const before = {
    metadata: { annotations: { theirs: "1" }, labels: { app: "web" } },
    spec: { nodeName: "node-a" },
    status: { phase: "Running" },
  };
  const { metadata } = before;
  const after = {
    ...before,
    metadata: { ...metadata, annotations: { theirs: "1", [own]: "[]" } },
  };
  const node = { "authentication.kubernetes.io/node-name": ["node-a"] };
  const userInfo = { username: "system:serviceaccount:podnet-system:podnetd", extra: node };
  let count = 0;
  const judge = (change: { object?: object; oldObject?: object; userInfo?: object }): string => {
    const request = { userInfo: change.userInfo ?? userInfo };
    const spec = { object: after, oldObject: before, ...change, request };
    const body = { apiVersion: "policy.test/v1", kind: "Case", metadata: { name: `c${++count}` } };
    return outcome(raw("POST", policyCases("cases"), { ...body, spec }));
  };
  const notAnnotated = { ...before, metadata: { labels: metadata.labels } };
  assert.equal(judge({}), "accepted");
  assert.equal(judge({ oldObject: after, object: before }), "accepted", "its own one goes");
  assert.equal(
    judge({
      oldObject: notAnnotated,
      object: { ...before, metadata: { ...metadata, annotations: { [own]: "[]" } } },
    }),
    "accepted",
  );
  const others = /podnetd of node .*may write the status of its own pods only/;
  const another = { ...userInfo, extra: { "authentication.kubernetes.io/node-name": ["node-b"] } };
  assert.match(judge({ userInfo: another }), others);
  assert.match(judge({ userInfo: { ...userInfo, extra: {} } }), others, "a token without a node");
  const pending = { ...before, spec: {} };
  assert.match(judge({ oldObject: pending }), others, "not scheduled");
  const annotations = /may write its status annotations only/;
  const changed = { ...metadata, annotations: { theirs: "2" } };
  assert.match(judge({ object: { ...before, metadata: changed } }), annotations);
  assert.match(judge({ object: notAnnotated }), annotations);
  const rest = /neither a pod's status nor its labels/;
  assert.match(judge({ object: { ...after, status: { phase: "Failed" } } }), rest);
  const relabelled = { ...after, metadata: { ...after.metadata, labels: { app: "x" } } };
  assert.match(judge({ object: relabelled }), rest);
  const kubelet = { username: "system:node:node-b", extra: {} };
  assert.equal(judge({ userInfo: kubelet, object: relabelled }), "accepted", "not its business");
});

test("the policy on default's deletion looks at the object, whatever the request is named", async () => {
  const file = "conf/kustomize/controller/current/default-network.yaml";
  const made = raw("POST", crds, policyDefinition(file, "deletions"));
  assert.equal(made.status, 0, made.stdout);
  const established = () => conditionsOf(`${crds}/deletions.policy.test`);
  while (!established().includes("Established True")) await sleep(100);
  let count = 0;
  const judge = (name: string): string => {
    const metadata = { name: `d${++count}` };
    const spec = { oldObject: { metadata: { name } } };
    const body = { apiVersion: "policy.test/v1", kind: "Deletion", metadata, spec };
    return outcome(raw("POST", policyCases("deletions"), body));
  };
  assert.match(judge("default"), /default.+ can't be deleted: pods that name no network/);
  for (const name of ["blue", "default2", ""]) assert.equal(judge(name), "accepted", name);
});
