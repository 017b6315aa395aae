import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ControlledApi, ControllerProcess } from "../../helpers/controller.ts";

/** The acceptance examples as far as conditions, protection and the default network are concerned, on a real API server. */

const stack = new AsyncDisposableStack();
let at: ControlledApi;
let controller: ControllerProcess;

before(async () => {
  at = stack.use(await ControlledApi.start());
  controller = stack.use(new ControllerProcess(at.server, ["--lease-duration", "3"]));
  await controller.said('"leading"');
});
after(async () => {
  await stack.disposeAsync();
  if (process.exitCode) process.stderr.write(controller.log.slice(-6000));
});

const dataplane = "podnetworks dataplane";
const finalizers = async (name: string) =>
  ((await at.api.get(name)).metadata.finalizers ?? []) as string[];

test("E-1: the default network is made at the start, enabled and ready", async () => {
  await at.until("podnetworks default", "True Ready");
  const made = await at.api.get("podnetworks default");
  assert.deepEqual(made.spec, { enabled: true });
  assert.deepEqual(made.metadata.finalizers, undefined, "it must be able to go and come at once");
});

test("E-2: without a policy the default network that is deleted has a new uid within 5 s, never a deletion that is pending", async () => {
  const before = (await at.api.get("podnetworks default")).metadata.uid;
  await at.pod("on-default", undefined, "Running");
  const started = Date.now();
  await at.api.delete("podnetworks default");
  let uid = before;
  while (uid === before || uid === undefined) {
    const found = await at.api.find("podnetworks default");
    assert.equal(found?.metadata.deletionTimestamp, undefined);
    uid = found?.metadata.uid;
    assert.ok(Date.now() - started < 5_000, "within 5 s");
  }
  await at.until("podnetworks default", "True Ready");
  await at.until("podnetworks default", "True InUse", "InUse");
  await at.api.delete("pods app/on-default");
});

test("E-7: a foreign provider's network is ready when its provider says so, and its condition is never touched", async () => {
  const ref = (name: string) => ({
    group: "k8s.cni.cncf.io",
    kind: "NetworkAttachmentDefinition",
    name,
    namespace: "infra",
  });
  await at.network("dataplane", {
    provider: "acme.io/foo",
    parametersRefs: [ref("dp-a"), ref("dp-b")],
  });
  await at.until(dataplane, "False ParamsNotReady");
  assert.equal(await at.condition(dataplane, "ParamsReady"), "");
  const say = async (status: string, message: string) => {
    const { conditions } = (await at.api.get(dataplane)).status;
    const others = conditions.filter((one: { type: string }) => one.type !== "ParamsReady");
    const params = { type: "ParamsReady", status, reason: "Vetted", message };
    await at.api.patch(`${dataplane}/status`, { status: { conditions: [...others, params] } });
  };
  await say("True", "as it should be");
  await at.until(dataplane, "True Ready");
  await say("False", "dp-b is gone");
  await at.until(dataplane, "False ParamsNotReady");
  assert.match((await at.conditionObject(dataplane)).message, /dp-b is gone/);
  assert.equal((await at.conditionObject(dataplane, "ParamsReady")).message, "dp-b is gone");
  await say("True", "as it should be");
  await at.until(dataplane, "True Ready");
});

test("E-8: disabling makes it not ready, enabling ready again; the status keeps up with the generation", async () => {
  await at.api.patch(dataplane, { spec: { enabled: false } });
  await at.until(dataplane, "False AdministrativelyDisabled");
  await at.api.patch(dataplane, { spec: { enabled: true } });
  await at.until(dataplane, "True Ready");
  const { metadata } = await at.api.get(dataplane);
  assert.equal((await at.conditionObject(dataplane)).observedGeneration, metadata.generation);
});

test("E-12: an attachment follows its network", async () => {
  await at.api.patch(dataplane, { spec: { enabled: false } });
  await at.attachment("app/fast", "dataplane", [
    { group: "acme.io", kind: "PodParams", name: "rate100", namespace: "app" },
  ]);
  const fast = "podnetworkattachments app/fast";
  await at.until(fast, "False PodNetworkNotReady");
  await at.api.patch(dataplane, { spec: { enabled: true } });
  await at.until(fast, "False ParamsNotReady");
  const { conditions } = (await at.api.get(fast)).status;
  const params = { type: "ParamsReady", status: "True", reason: "Vetted", message: "fine" };
  await at.api.patch(`${fast}/status`, { status: { conditions: [...conditions, params] } });
  await at.until(fast, "True Ready");
  await at.attachment("app/lost", "nowhere");
  await at.until("podnetworkattachments app/lost", "False PodNetworkNotReady");
  const { message } = await at.conditionObject("podnetworkattachments app/lost");
  assert.match(message, /PodNetwork "nowhere" not found/);
  await at.network("nowhere");
  await at.until("podnetworkattachments app/lost", "True Ready");
});

test("E-11: a deleted network stays until its last user is gone; finished and unscheduled pods don't count", async () => {
  await at.api.delete("podnetworkattachments app/fast");
  await at.untilGone("podnetworkattachments app/fast");
  const on = [{ name: "default" }, { name: "dataplane" }];
  await at.pod("running", on, "Running");
  await at.pod("done", on, "Succeeded");
  await at.until(dataplane, "True InUse", "InUse");
  await at.api.delete(dataplane);
  await at.until(dataplane, "False Deleting");
  assert.match((await at.conditionObject(dataplane)).message, /in use by 1 pod \(app\/running\)/);
  assert.deepEqual(await finalizers(dataplane), ["podnet.dev/in-use"]);
  await at.pod("late", on);
  await sleep(1_200);
  await at.pod("late-scheduled", on, "Pending");
  await at.api.delete("pods app/running");
  await at.untilGone(dataplane);
  for (const name of ["done", "late", "late-scheduled"]) await at.api.delete(`pods app/${name}`);
});

test("E-11: the same with a pod that fails, and with an attachment as the only user", async () => {
  await at.network("second");
  await at.pod("fails", [{ name: "second" }], "Running");
  await at.attachment("app/holds", "second");
  await at.until("podnetworks second", "True InUse", "InUse");
  await at.api.delete("podnetworks second");
  await at.until("podnetworks second", "False Deleting");
  await at.phase("app/fails", "Failed");
  await at.eventually(
    async () =>
      /in use by 1 PodNetworkAttachment \(app\/holds\)/.test(
        (await at.conditionObject("podnetworks second"))?.message ?? "",
      ),
    () => "only the attachment is left",
  );
  await at.api.delete("podnetworkattachments app/holds");
  await at.untilGone("podnetworks second");
});

test("an attachment that a pod uses stays until the pod is gone, and so does its network", async () => {
  await at.network("third");
  await at.attachment("app/third", "third");
  await at.pod("through", [{ attachmentName: "third" }], "Running");
  await at.until("podnetworkattachments app/third", "True InUse", "InUse");
  await at.api.delete("podnetworks third");
  await at.api.delete("podnetworkattachments app/third");
  await at.until("podnetworkattachments app/third", "False Deleting");
  await at.until("podnetworks third", "False Deleting");
  await at.api.delete("pods app/through");
  await at.untilGone("podnetworkattachments app/third");
  await at.untilGone("podnetworks third");
});

test("a namespace's default network is used by its pods that list none", async () => {
  await at.network("tenant");
  await at.pod("team-b/plain", undefined, "Running");
  await at.until("podnetworks tenant", "False NotInUse", "InUse");
  const annotations = { "podnet.dev/default-network": "tenant" };
  await at.api.patch("namespaces team-b", { metadata: { annotations } });
  await at.until("podnetworks tenant", "True InUse", "InUse");
  await at.api.patch("namespaces team-b", {
    metadata: { annotations: { "podnet.dev/default-network": null } },
  });
  await at.until("podnetworks tenant", "False NotInUse", "InUse");
  await at.api.delete("pods team-b/plain");
});

test("E-20: podnet's own providers are vetted, in words that say what to change", async () => {
  await at.network("p1", { provider: "podnet.dev/conflist" });
  await at.until("podnetworks p1", "True Ready");
  assert.equal(await at.condition("podnetworks p1", "ParamsReady"), "True NodeConfiguration");
  await at.network("p2", { provider: "other.io/x" });
  await at.until("podnetworks p2", "True Ready");
  assert.equal(await at.condition("podnetworks p2", "ParamsReady"), "");
  const ipam = { type: "host-local", ranges: [[{ subnet: "10.1.0.0/33" }]] };
  await at.network("bad", { parameters: { type: "bridge", ipam, isGatewy: true } });
  await at.until("podnetworks bad", "False ParamsNotReady");
  const { status, message } = await at.conditionObject("podnetworks bad", "ParamsReady");
  assert.equal(status, "False");
  assert.match(
    message,
    /spec\.parameters\.ipam\.ranges\[0\]\[0\]\.subnet: "10\.1\.0\.0\/33" must be/,
  );
  await at.network("odd", { parameters: { type: "bridge", isGatewy: true } });
  await at.until("podnetworks odd", "True Ready");
  assert.match(
    (await at.conditionObject("podnetworks odd", "ParamsReady")).message,
    /unknown key "isGatewy": did you mean "isGateway"/,
  );
});

test("parameters in a NAD are vetted when it comes, and when it changes", async () => {
  const ref = {
    group: "k8s.cni.cncf.io",
    kind: "network-attachment-definitions",
    name: "cfg",
    namespace: "app",
  };
  await at.network("by-nad", { parametersRefs: [ref] });
  await at.until("podnetworks by-nad", "False ParamsNotReady");
  assert.equal(await at.condition("podnetworks by-nad", "ParamsReady"), "False ParametersNotFound");
  await at.nad("app/cfg", { name: "cfg", type: "bridge" });
  await at.until("podnetworks by-nad", "True Ready");
  await at.api.patch("network-attachment-definitions app/cfg", { spec: { config: "{" } });
  await at.until("podnetworks by-nad", "False ParametersInvalid", "ParamsReady");
});

test("what is malformed in any way gets a False condition or nothing, and the controller goes on", async () => {
  await at.network("weird", { parameters: { plugins: "x" } });
  await at.network("empty", { parameters: {} });
  await at.network("nothing", { parametersRefs: [] });
  for (const text of ["{", "[1]", '[{"name":5}]', '"x"'])
    await at.api.create({
      apiVersion: "v1",
      kind: "Pod",
      metadata: {
        namespace: "app",
        generateName: "bad-",
        annotations: { "podnet.dev/networks": text, "podnet.dev/network-status": text },
      },
      spec: { containers: [{ name: "c", image: "none" }] },
    });
  for (const name of ["weird", "empty", "nothing"]) {
    await at.until(`podnetworks ${name}`, "False ParamsNotReady");
    assert.notEqual((await at.conditionObject(`podnetworks ${name}`)).message, "");
  }
  await at.network("after");
  await at.until("podnetworks after", "True Ready");
});

test("nothing is written twice, and nothing where nothing has changed", async () => {
  await sleep(6_000);
  const versions = async () =>
    (await at.api.get("podnetworks")).items.map(
      (one: { metadata: { name: string; resourceVersion: string } }) =>
        `${one.metadata.name} ${one.metadata.resourceVersion}`,
    );
  const before = await versions();
  await at.pod("idle", [{ name: "nowhere-else" }]);
  await at.api.patch("pods app/idle", { metadata: { labels: { a: "b" } } });
  await at.api.delete("pods app/idle");
  await sleep(1_000);
  assert.deepEqual(await versions(), before);
});
