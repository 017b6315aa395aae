import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { routeWebhooks } from "../../../helpers/admission.ts";
import { WholeCluster } from "../../../helpers/whole-cluster.ts";
import { PodnetInstallation, podnetNamespace } from "../../../helpers/whole-cluster-podnet.ts";
import { applyNetworks, own } from "./networks.ts";

/** Everything is started at once, the controller last, and goes away again: pods start, with it and without it. */

const stack = new AsyncDisposableStack();
let cluster: WholeCluster;
const deployment = "deployment/podnet-controller";

before(async () => {
  cluster = stack.use(await WholeCluster.start());
  const podnet = new PodnetInstallation(cluster);
  await podnet.install();
  scale(0);
  await cluster.eventually("no controller", async () =>
    (await controllers()).length === 0 ? true : undefined,
  );
  applyNetworks({ cluster, podnet });
  routeWebhooks(cluster);
});
after(() => stack.disposeAsync());

function scale(replicas: number): void {
  cluster.api.must("scale", "-n", podnetNamespace, deployment, `--replicas=${replicas}`);
}

const controllers = () =>
  cluster.pods.list(podnetNamespace, "app.kubernetes.io/name=podnet-controller");
const listed = { [own]: '[{"name":"default"},{"name":"blue"}]' };

/** What the API server says to a pod whose list is wrong: 422 as soon as it can call the webhook. */
async function refusal(): Promise<number | undefined> {
  const metadata = { name: "probe", annotations: { [own]: "x" } };
  const spec = { containers: [{ name: "c", image: "none" }] };
  const body = { apiVersion: "v1", kind: "Pod", metadata, spec };
  try {
    await cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", body);
    return undefined;
  } catch (error) {
    return (error as { status?: number }).status;
  }
}

test("without the controller pods start: plain ones, and those that list networks", async () => {
  const plain = await cluster.pods.run({ name: "before-plain" });
  assert.equal(plain.metadata.annotations?.[own], undefined);
  await cluster.pods.run({ name: "before-listed", annotations: listed });
  assert.deepEqual(
    cluster.pods.interfaces("default/before-listed").map(({ name }) => name),
    ["eth0", "net1"],
  );
  assert.equal(await refusal(), undefined, "nobody is there to refuse");
});

test("the controller that comes last runs before any network of its own, and is called over TLS by its service's name", async () => {
  scale(1);
  const called = async () => ((await refusal()) === 422 ? true : undefined);
  await cluster.eventually("the webhook refuses", called, {
    seconds: 120,
    about: () => cluster.api.kubectl("get", "pods", "-A", "-o", "wide").stdout,
  });
  const [controller] = await controllers();
  assert.equal(controller.spec.hostNetwork, true);
  assert.equal(controller.metadata.annotations?.[own], undefined, "podnet's own pods are let be");
  await cluster.eventually(
    "default",
    async () => await cluster.get("/apis/podnet.dev/v1alpha1/podnetworks/default"),
  );
});

test("with it pods get the default network into their annotation, and start; those of before go on", async () => {
  const filled = async () => {
    const metadata = { name: "filled" };
    const spec = { containers: [{ name: "c", image: "none" }] };
    const pod = await cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", {
      apiVersion: "v1",
      kind: "Pod",
      metadata,
      spec,
    });
    return pod.metadata.annotations?.[own] === '[{"name":"default"}]' ? true : undefined;
  };
  await cluster.eventually("the webhook knows the default network", filled);
  const plain = await cluster.pods.run({ name: "with-plain" });
  assert.equal(plain.metadata.annotations[own], '[{"name":"default"}]');
  await cluster.pods.run({ name: "with-listed", annotations: listed });
  for (const name of ["before-listed", "with-listed"])
    assert.deepEqual(
      cluster.pods.interfaces(`default/${name}`).map((link) => link.name),
      ["eth0", "net1"],
    );
});

test("E-6 on a server without gates: a pod that names a missing network waits in ADD and runs when it comes", async () => {
  await cluster.pods.create({
    name: "waits",
    annotations: { [own]: '[{"name":"default"},{"name":"late"}]' },
  });
  await cluster.eventually("an event that names it", () =>
    cluster.pods.events("default/waits").some((event) => /PodNetwork "late" not found/.test(event))
      ? true
      : undefined,
  );
  const late = {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name: "late" },
  };
  const parameters = {
    type: "bridge",
    bridge: "br-late",
    ipam: { type: "host-local", ranges: [[{ subnet: "10.30.0.0/16" }]] },
  };
  cluster.api.apply({ ...late, spec: { parameters } });
  await cluster.pods.running("default/waits", 120);
});

test("with the controller gone again, its node's part alone, pods start", async () => {
  scale(0);
  await cluster.eventually(
    "no controller",
    async () => ((await refusal()) === undefined ? true : undefined),
    { seconds: 90 },
  );
  await cluster.pods.run({ name: "after-plain" });
  await cluster.pods.run({ name: "after-listed", annotations: listed });
  assert.deepEqual(
    cluster.pods.interfaces("default/after-listed").map(({ name }) => name),
    ["eth0", "net1"],
  );
});
