import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { stringify } from "yaml";
import { defaultConfinement } from "../../../lib/api/nad-rules-keys.ts";
import { installWebhooks, webhookFlag, webhooksServed } from "../../helpers/admission.ts";
import { ControlledApi, ControllerProcess } from "../../helpers/controller.ts";

/** Networks and NADs that are created beside running webhooks, on a real API server. */

const stack = new AsyncDisposableStack();
const metrics = "127.0.0.1:9478";
let at: ControlledApi;
let controller: ControllerProcess;

before(async () => {
  at = stack.use(await ControlledApi.start());
  installWebhooks(at);
  const { nadTypes } = defaultConfinement;
  const nodeConfig = join(at.lab.folder(), "podnetd.yaml");
  writeFileSync(nodeConfig, stringify({ nadTypes: [...nadTypes, "acme-*"] }));
  const flags = ["--no-leader-elect", "--webhook", webhookFlag, "--node-config", nodeConfig];
  controller = stack.use(new ControllerProcess(at.server, [...flags, "--metrics", metrics]));
  await at.until("podnetworks default", "True Ready");
  await webhooksServed(at);
});
after(async () => {
  await stack.disposeAsync();
  if (process.exitCode) process.stderr.write(controller.log.slice(-6000));
});

/** Writes of a kind so far, by what was written. */
function writes(kind: string): Record<string, number> {
  const get = `require("node:http").get("http://${metrics}/metrics",(a)=>a.pipe(process.stdout))`;
  const text = at.server.node.run(process.execPath, "-e", get);
  const rows = text.matchAll(
    /^podnet_controller_writes_total\{kind="(\w+)",what="(\w+)"\} (\d+)$/gm,
  );
  return Object.fromEntries(
    [...rows].filter((row) => row[1] === kind).map((row) => [row[2], Number(row[3])]),
  );
}

test("a new network and a new attachment have the finalizer at once, and cost one write each", async () => {
  const own = ["podnet.dev/in-use"];
  assert.deepEqual((await at.network("blue")).metadata.finalizers, own);
  assert.deepEqual((await at.attachment("app/fast", "blue")).metadata.finalizers, own);
  await at.until("podnetworkattachments app/fast", "True Ready");
  await at.until("podnetworks blue", "True InUse", "InUse");
  assert.equal(writes("PodNetworkAttachment")["finalizers"], undefined);
  assert.equal(writes("PodNetwork")["finalizers"], undefined);
  assert.equal(writes("PodNetworkAttachment")["status"], 1);
  const bare = await at.api.get("podnetworks default");
  assert.equal(bare.metadata.finalizers, undefined);
  await at.api.delete("podnetworkattachments app/fast");
  await at.api.delete("podnetworks blue");
  await at.untilGone("podnetworks blue");
});

test("networks that are made with names of the server's own are protected too", async () => {
  const made = await at.api.create({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { generateName: "made-" },
    spec: { parameters: { type: "bridge", bridge: "br0" } },
  });
  assert.deepEqual(made.metadata.finalizers, ["podnet.dev/in-use"]);
});

const path = "/apis/k8s.cni.cncf.io/v1/namespaces/app/network-attachment-definitions";
const nad = (name: string, config: string) => ({
  apiVersion: "k8s.cni.cncf.io/v1",
  kind: "NetworkAttachmentDefinition",
  metadata: { namespace: "app", name },
  spec: { config },
});

test("NADs: what can't be attached is refused with every fault, and kubectl shows each", async () => {
  const text = JSON.stringify({ name: "-", plugins: [{ type: "" }, { type: "bridge", ipam: 5 }] });
  const { status, body } = await at.api.raw("POST", path, nad("wrong", text));
  assert.equal(status, 422);
  for (const part of ["name: ", "plugins[0].type: missing", "plugins[1].ipam: must be an object"])
    assert.ok(body.message.includes(`spec.config: ${part}`), body.message);
  assert.equal((await at.api.raw("POST", path, nad("wrong", "{"))).status, 422);
  const good = JSON.stringify({ name: "a", cniVersion: "1.0.0", type: "acme-x" });
  const made = await at.api.raw("POST", path, nad("good", good));
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const changed = await at.api.raw("PATCH", `${path}/good`, { spec: { config: "x" } });
  assert.equal(changed.status, 422);
  const labelled = { metadata: { labels: { a: "b" } } };
  assert.equal((await at.api.raw("PATCH", `${path}/good`, labelled)).status, 200);
});

test("NADs of tenants have no more than the nodes permit; an admin's are let in with a warning", async () => {
  at.server.apply(
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "Role",
      metadata: { namespace: "app", name: "tenant" },
      rules: [{ apiGroups: ["k8s.cni.cncf.io"], resources: ["*"], verbs: ["*"] }],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { namespace: "app", name: "tenant" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "tenant" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "eve" }],
    },
  );
  const taking = JSON.stringify({ name: "a", type: "host-device", device: "eth0" });
  const create = (object: object, ...flags: string[]) =>
    at.server.kubectlInput(
      JSON.stringify(object),
      "create",
      "-f",
      "-",
      "--validate=false",
      ...flags,
    );
  const permitted = JSON.stringify({ name: "a", type: "acme-x" });
  const own = create(nad("mine", permitted), "--as=eve");
  assert.equal(own.status, 0, own.stderr);
  const refused = create(nad("taking", taking), "--as=eve");
  assert.notEqual(refused.status, 0);
  assert.match(refused.stderr, /Forbidden.*"app\/taking".*plugins\[0\]\.type: type "host-device"/s);
  const admin = create(nad("taking", taking));
  assert.equal(admin.status, 0, admin.stderr);
  assert.match(admin.stderr, /Warning: pods can't list this one: spec\.config: plugins\[0\]\.type/);
});
