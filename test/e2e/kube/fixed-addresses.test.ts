import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import { Cluster, type TestPod } from "../../helpers/cluster.ts";
import { ControllerProcess } from "../../helpers/controller.ts";

/** A PodNetworkAttachment with an address of its own, podnetd and the controller on a real API server; and a node that waits. */

const stack = new AsyncDisposableStack();
let cluster: Cluster;
let controller: ControllerProcess | undefined;

before(async () => {
  cluster = stack.use(await Cluster.start());
  const rights = readFileSync("conf/kustomize/controller/rbac.yaml", "utf8");
  const objects = parseAllDocuments(rights).map((document) => document.toJS() as object);
  const metadata = { name: "podnet-system" };
  cluster.api.apply({ apiVersion: "v1", kind: "Namespace", metadata }, ...objects);
  const ipam = { type: "static", addresses: [{ address: "10.10.0.5/16" }] };
  cluster.api.apply(cluster.nad("app/fixed", { type: "bridge", bridge: "br-blue", ipam }), {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace: "app", name: "single" },
    spec: {
      podNetworkName: "blue",
      parametersRefs: [
        { group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", name: "fixed" },
      ],
    },
  });
  await cluster.startDaemon(cluster.api.kubeconfig("podnet"));
});
after(async () => {
  await controller?.stop();
  await stack.disposeAsync();
});

const on = { "podnet.dev/networks": '[{"attachmentName":"single"}]' };
const attachment = () => cluster.api.get("pna", "-n", "app", "single");

function holder(): string | undefined {
  return attachment().status?.holder?.name;
}

async function held(by: string | undefined): Promise<void> {
  await cluster.eventually(() => (holder() === by ? true : undefined), `holder ${by}`);
}

function remove(pod: TestPod): void {
  cluster.api.must("delete", "pod", "-n", "app", pod.name, "--grace-period=0", "--force");
}

test("without a controller: the second pod is refused with the first one's name, and served when that is gone", async () => {
  const [first, second] = [cluster.pod("first", on), cluster.pod("second", on)];
  await cluster.must("ADD", first);
  assert.equal(holder(), "first");
  const answer = await cluster.run("ADD", second);
  assert.equal(answer.json.code, 108, answer.stdout);
  assert.match(
    answer.json.msg,
    /PodNetworkAttachment "app\/single": pod "first" has its address 10\.10\.0\.5\/16/,
  );
  await cluster.must("DEL", first);
  const again = await cluster.run("ADD", second);
  assert.equal(again.json.code, 108, "the pod may get another sandbox");
  await cluster.must("ADD", first);
  await cluster.must("DEL", first);
  remove(first);
  await cluster.must("ADD", second);
  assert.equal(holder(), "second");
  await cluster.must("DEL", second);
});

test("two pods that ask at the same moment: one has it", async () => {
  cluster.api.must("delete", "pod", "-n", "app", "second", "--grace-period=0", "--force");
  const pods = ["a", "b", "c"].map((name) => cluster.pod(`race-${name}`, on));
  const answers = await Promise.all(pods.map((pod) => cluster.run("ADD", pod)));
  assert.deepEqual(
    answers.map(({ status, json }) => (status === 0 ? 0 : json.code)).toSorted(),
    [0, 108, 108],
    answers.map(({ stdout }) => stdout).join("\n"),
  );
  for (const pod of pods) {
    await cluster.run("DEL", pod);
    remove(pod);
  }
});

test("with the controller: the status names who has it and who waits, and it is free when the pod is gone, also unseen", async () => {
  controller = new ControllerProcess(cluster.api, ["--no-leader-elect"]);
  await controller.said("ready");
  await held(undefined);
  const [first, second] = [cluster.pod("one", on), cluster.pod("two", on)];
  await cluster.must("ADD", first);
  assert.equal((await cluster.run("ADD", second)).json.code, 108);
  const message = (): string =>
    (attachment().status.conditions as { type: string; message: string }[]).find(
      ({ type }) => type === "InUse",
    )?.message ?? "";
  const told = "pod one has 10.10.0.5/16; pod two waits for it";
  await cluster.eventually(() => (message() === told ? true : undefined), told);
  // The controller has seen the pod; what it has not seen it must not take for gone.
  await sleep(500);
  assert.equal(holder(), "one");
  await cluster.must("DEL", first);
  remove(first);
  await held(undefined);
  await cluster.must("ADD", second);
  await held("two");
  // The pod goes while no controller watches.
  await controller.stop();
  await cluster.must("DEL", second);
  remove(second);
  controller = new ControllerProcess(cluster.api, ["--no-leader-elect"]);
  await held(undefined);
});

test("a node that requires the default network says so until the controller has made it", async () => {
  await controller?.stop();
  await cluster.daemon.stop();
  cluster.api.must("delete", "podnetwork", "default");
  const kubeconfig = cluster.api.kubeconfig("podnet");
  await cluster.startDaemon(kubeconfig, { requireDefaultPodNetwork: true });
  const pod = cluster.pod("any");
  const answer = await cluster.run("STATUS", pod);
  assert.equal(answer.json?.code, 50, answer.stdout);
  assert.match(answer.json.msg, /PodNetwork "default" not found/);
  controller = new ControllerProcess(cluster.api, ["--no-leader-elect"]);
  await cluster.eventually(async () => {
    const { stdout } = await cluster.run("STATUS", pod);
    return stdout.includes("not found") ? undefined : true;
  }, "a default network");
});
