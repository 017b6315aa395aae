import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, nodeName } from "../../helpers/cluster.ts";
import { type CtlAnswer, podnetctl } from "../../helpers/podnetctl.ts";

let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start();
});
after(() => cluster?.[Symbol.asyncDispose]());

const inNamespace = ["-n", "podnet-system"];
const apply = (folder: string): string =>
  cluster.api.must("apply", "-k", `conf/kustomize/${folder}`);

test("kubectl 1.20 applies conf/kustomize/legacy, the second time without a change, and builds the others", () => {
  assert.match(apply("legacy"), /daemonset.apps\/podnetd created/);
  const again = apply("legacy").trim().split("\n");
  assert.deepEqual(
    again.filter((line) => !line.endsWith("unchanged")),
    [],
  );
  for (const folder of ["default", "uninstall"])
    assert.match(cluster.api.must("kustomize", `conf/kustomize/${folder}`), /^kind:/m);
});

test("a node agent says in events on its node that it waits, and that it is installed", async () => {
  const daemon = await cluster.startDaemon(cluster.api.kubeconfig("podnet"), { install: true });
  const list = { cniVersion: "1.0.0", name: "theirs", plugins: [{ type: "nobody-has-it" }] };
  const empty = cluster.podNetwork("default", {});
  cluster.api.must("delete", "podnetwork", "default", "--wait=true");
  cluster.api.apply({ ...empty, spec: { enabled: true } });
  writeFileSync(join(daemon.confDir, "10-theirs.conflist"), JSON.stringify(list));
  await daemon.kill();
  await daemon.restart();
  const events = () =>
    cluster.api
      .get("events", "-n", "default", "--field-selector=involvedObject.kind=Node")
      .items.map((one: { involvedObject: { name: string }; reason: string; message: string }) =>
        [one.involvedObject.name, one.reason, one.message].join(" "),
      );
  const bridge = { ...list, plugins: [cluster.bridge("theirs", "10.44.0.0/16")] };
  writeFileSync(join(daemon.confDir, "10-theirs.conflist"), JSON.stringify(bridge));
  const expected = new RegExp(`^${nodeName} PodnetInstalled .*00-podnet.conflist" is in place`);
  await cluster.eventually(
    () => events().find((text: string) => expected.test(text)),
    "the event on the node",
  );
  // The default network without parameters, as the controller makes it, is the node's own.
  const pod = cluster.pod("plain");
  const { ips } = await cluster.must("ADD", pod);
  assert.match(ips[0].address, /^10\.44\./);
  assert.equal(ips[0].podNetwork, "default");
  await cluster.must("DEL", pod);
});

/** Runs `podnetctl uninstall` with the rights of the Job. */
function uninstall(...args: string[]): Promise<CtlAnswer> {
  const kubeconfig = cluster.api.kubeconfig("uninstall");
  return podnetctl(cluster.place, ["uninstall", "--kubeconfig", kubeconfig, ...args]);
}

/** What the DaemonSet's controller would say: all nodes have what its template says. */
function nodesDone(): void {
  const path = "/apis/apps/v1/namespaces/podnet-system/daemonsets/podnetd";
  const object = cluster.api.get("daemonset", "podnetd", ...inNamespace);
  object.status = {
    observedGeneration: object.metadata.generation,
    currentNumberScheduled: 1,
    numberMisscheduled: 0,
    desiredNumberScheduled: 1,
    updatedNumberScheduled: 1,
    numberReady: 1,
  };
  const put = ["replace", "--raw", `${path}/status`, "-f", "-"];
  const { status, stderr } = cluster.api.kubectlInput(JSON.stringify(object), ...put);
  assert.equal(status, 0, stderr);
}

test("podnetctl uninstall: step by step with the Job's rights alone, waits for the nodes, ends with nothing of podnet left", async () => {
  apply("uninstall");
  cluster.api.must(
    "patch",
    "podnetwork",
    "blue",
    "--type=merge",
    "-p",
    '{"metadata":{"finalizers":["podnet.dev/in-use","other.io/kept"]}}',
  );
  const first = await uninstall("--wait", "1");
  assert.equal(first.status, 1, first.stdout);
  assert.match(first.stderr, /nodes: 0 of 0 nodes are done after 1 s: run it again/);
  assert.match(first.stdout, /admission: validatingwebhookconfigurations "podnet" deleted/);
  assert.match(first.stdout, /controller: stopped/);
  const agent = cluster.api.get("daemonset", "podnetd", ...inNamespace).spec;
  assert.deepEqual(agent.template.spec.containers[0].args, ["--install", "remove"]);
  assert.deepEqual(agent.template.spec.containers[0].command.slice(0, 1), ["podnetd"]);
  assert.equal(agent.updateStrategy.rollingUpdate.maxUnavailable, "100%");
  cluster.api.get("podnetwork", "blue");
  nodesDone();
  // The other finalizer keeps the object, and so the definition, for as long as its owner wants.
  const waiting = uninstall("--wait", "20");
  await cluster.eventually(() => {
    const { status, stdout } = cluster.api.kubectl("get", "podnetwork", "blue", "-o", "json");
    if (status !== 0) return undefined;
    const { finalizers } = JSON.parse(stdout).metadata;
    return finalizers.join() === "other.io/kept" ? true : undefined;
  }, "the finalizer is off");
  await sleep(500);
  cluster.api.must(
    "patch",
    "podnetwork",
    "blue",
    "--type=merge",
    "-p",
    '{"metadata":{"finalizers":null}}',
  );
  const second = await waiting;
  assert.equal(second.status, 0, second.stdout + second.stderr);
  assert.match(second.stdout, /objects: definition "podnetworks.podnet.dev" deleted/);
  assert.match(second.stdout, /programs: node agent deleted/);
  const third = await uninstall();
  assert.equal(third.status, 0, third.stdout + third.stderr);
  assert.match(third.stdout, /nodes: there is no node agent/);
  const crds: string = cluster.api.must("get", "crd", "-o", "name");
  assert.match(crds, /network-attachment-definitions/, "everybody's");
  assert.doesNotMatch(crds, /podnet\.dev/);
});
