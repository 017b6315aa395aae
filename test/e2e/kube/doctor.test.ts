import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Finding } from "../../../daemon/node/doctor/finding.ts";
import { tokens } from "../../helpers/apiserver.ts";
import { Cluster } from "../../helpers/cluster.ts";
import { KubeProxy } from "../../helpers/kube-proxy.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";

// `podnetctl doctor` and `podnetctl explain` on a node of a real API server, which a proxy takes away.
let cluster: Cluster;
let proxy: KubeProxy;

before(async () => {
  cluster = await Cluster.start();
  proxy = await KubeProxy.start(cluster.api);
  await cluster.startDaemon(cluster.api.kubeconfig("podnet", proxy.server));
});
after(async () => {
  await proxy?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

const own = "podnet.dev/networks";
const both = '[{"name":"default"},{"name":"blue"}]';
const elsewhere = new Set(["stub", "conflist"]);

const ctl = (...args: readonly string[]) =>
  podnetctl(cluster.place, ["--socket", cluster.daemon.socket, ...args]);

/** What is found about the cluster: this node has no stub and no configuration of podnet. */
async function doctor(): Promise<Finding[]> {
  const { stdout, stderr } = await ctl("doctor", "-o", "json");
  assert.notEqual(stdout, "", stderr);
  const findings: Finding[] = JSON.parse(stdout);
  return findings.filter(({ check }) => !elsewhere.has(check));
}

const wrong = (findings: readonly Finding[]) => findings.filter(({ level }) => level !== "ok");

/** Sets a pod's phase, as a kubelet does. */
function running(name: string): void {
  const pod = cluster.api.get("pod", "-n", "app", name);
  const path = `/api/v1/namespaces/app/pods/${name}/status`;
  const text = JSON.stringify({ ...pod, status: { phase: "Running" } });
  const done = cluster.api.kubectlInput(text, "replace", "--raw", path, "-f", "-");
  assert.equal(done.status, 0, done.stderr);
}

test("a healthy cluster: API, credentials, watches and pods are fine", async () => {
  const pod = cluster.pod("fine", { [own]: both });
  await cluster.must("ADD", pod);
  running("fine");
  await cluster.status(pod);
  const findings = await doctor();
  assert.deepEqual(wrong(findings), []);
  const checks = new Set(findings.map(({ check }) => check));
  for (const check of ["api", "credentials", "watch", "pods"]) assert.ok(checks.has(check), check);
});

test("a pod that runs without what it asked for, and one that asked for more afterwards", async () => {
  cluster.pod("past", { [own]: both });
  running("past");
  const later = cluster.pod("later", {});
  await cluster.must("ADD", later);
  running("later");
  cluster.api.must("annotate", "pod", "-n", "app", "later", `${own}=${both}`);
  const findings = wrong(await doctor());
  assert.deepEqual(findings.map(({ level, check }) => [level, check]).toSorted(), [
    ["error", "pods"],
    ["warn", "pods"],
  ]);
  const texts = findings.map(({ text }) => text).join("\n");
  assert.match(texts, /pod "app\/past" asked for default, blue: podnet attached nothing to it/);
  assert.match(texts, /pod "app\/later" asked for default, blue and has default/);
  for (const name of ["past", "later"]) {
    cluster.api.must("delete", "pod", "-n", "app", name, "--grace-period=0", "--force");
  }
});

test("a NetworkAttachmentDefinition that would fail here is a warning", async () => {
  cluster.api.apply(cluster.nad("app/untagged", { name: "untagged", type: "vlan" }));
  const [found] = await cluster.eventually(async () => {
    const all = wrong(await doctor());
    return all.length > 0 ? all : undefined;
  }, "the warning");
  assert.deepEqual([found?.level, found?.check], ["warn", "networks"]);
  assert.match(found?.text ?? "", /"app\/untagged": plugins\[0\]\.master: missing/);
  cluster.api.must("delete", "net-attach-def", "-n", "app", "untagged");
  await cluster.eventually(
    async () => (wrong(await doctor()).length === 0 ? true : undefined),
    "nothing to find",
  );
});

test("explain: annotations as the API has them, the namespace's default, and the events", async () => {
  const pod = cluster.pod("told", { [own]: '[{"name":"nowhere"}]' });
  assert.equal((await cluster.run("ADD", pod)).status, 1);
  const { stdout, status } = await ctl("explain", "told", "-n", "app");
  assert.equal(status, 0);
  assert.match(stdout, /podnet\.dev\/networks: \[\{"name":"nowhere"\}\]/);
  assert.match(stdout, /refused: .*PodNetwork "nowhere" not found.*\(code 100\)/);
  assert.match(stdout, /EVENTS\n {2}\S+ Warning NetworkNotFound \(1\)/);
  const tenant = cluster.pod("tenant", {}, "tenant");
  await cluster.must("ADD", tenant);
  const of = await ctl("explain", "tenant", "-n", "tenant");
  assert.match(of.stdout, /namespace's podnet\.dev\/default-network: blue/);
  assert.match(of.stdout, /Normal AttachedNetwork \(1\): Added eth0 /);
});

test("the API server is away: said as such, with the watches, and the rest is still examined", async () => {
  await proxy.set({ down: true });
  const findings = await cluster.eventually(async () => {
    const all = await doctor();
    return all.some(({ check, level }) => check === "watch" && level !== "ok") ? all : undefined;
  }, "a watch that is not open");
  const found = wrong(findings);
  assert.ok(found.some(({ check, level }) => check === "api" && level === "error"));
  assert.ok(found.some(({ check, level }) => check === "pods" && level === "warn"));
  assert.ok(findings.some(({ check, level }) => check === "interfaces" && level === "ok"));
  await proxy.set({});
  await cluster.eventually(
    async () => (wrong(await doctor()).length === 0 ? true : undefined),
    "a healthy node again",
  );
});

test("no secret of the node is in its log, at the finest level, or in the report", async () => {
  await ctl("log-level", "trace");
  await cluster.must("ADD", cluster.pod("traced", {}));
  const report = await ctl("doctor");
  const all = cluster.daemon.log + report.stdout + report.stderr;
  assert.match(all, /log level changed/);
  assert.ok(!all.includes(tokens.podnet));
});
