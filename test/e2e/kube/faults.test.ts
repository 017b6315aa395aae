import assert from "node:assert/strict";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServingPair } from "../../../lib/kube/issue-pair.ts";
import { issueServingPair } from "../../../lib/kube/serving-pair.ts";
import { tokens } from "../../helpers/apiserver.ts";
import { Cluster, type TestPod } from "../../helpers/cluster.ts";
import { KubeProxy } from "../../helpers/kube-proxy.ts";

const stack = new AsyncDisposableStack();
let cluster: Cluster;
let proxy: KubeProxy;
let token: string;

/** Writes the token as the kubelet does: a new file in the place of the old one. */
function writeToken(text: string): void {
  writeFileSync(`${token}.new`, text);
  renameSync(`${token}.new`, token);
}

before(async () => {
  cluster = stack.use(await Cluster.start());
  proxy = stack.use(await KubeProxy.start(cluster.api));
  token = join(cluster.api.folder, "token");
  writeToken(tokens.podnet);
  const server = { server: proxy.server };
  const kubeconfig = cluster.api.writeKubeconfig("proxied", {
    cluster: server,
    user: { tokenFile: token },
  });
  await cluster.startDaemon(kubeconfig);
});
after(() => stack.disposeAsync());

const blue = { "podnet.dev/networks": '[{"name":"blue"}]' };

/** Until podnetd's watch of pods has the pod. */
async function known(pod: TestPod): Promise<void> {
  await cluster.must("ADD", pod);
  await cluster.must("DEL", pod);
  await sleep(1_500);
}

async function recovers(pod: TestPod, what: string): Promise<void> {
  await cluster.eventually(async () => {
    const { status } = await cluster.run("ADD", pod);
    return status === 0 ? true : undefined;
  }, what);
  await cluster.must("DEL", pod);
}

test("while the API is away: known pods are attached, unknown ones told to wait, DEL and CHECK work, STATUS is about the default network", async () => {
  const [held, cached] = [cluster.pod("held", blue), cluster.pod("cached", blue)];
  await cluster.must("ADD", held);
  await known(cached);
  const late = cluster.pod("late-known", blue);
  await proxy.set({ down: true });
  await sleep(300);
  await cluster.must("ADD", cached);
  await cluster.must("CHECK", { ...held });
  await cluster.must("DEL", held);
  const unknown: TestPod = { ...late, name: "nobody-knows" };
  const answer = await cluster.run("ADD", unknown);
  assert.equal(answer.json.code, 11, answer.stdout);
  assert.match(answer.json.msg, /find Pod "app\/nobody-knows": the API server can't be asked/);
  assert.equal((await cluster.run("DEL", unknown)).status, 0);
  assert.equal((await cluster.run("STATUS", cached)).status, 0, "the default network is known");
  await proxy.set({});
  await recovers(late, "an ADD after the API came back");
  await cluster.must("DEL", cached);
});

for (const status of [429, 500, 401, 403]) {
  test(`an API that answers ${status} means a retriable error for what is not known, and recovery without a restart`, async () => {
    await proxy.set({ status });
    const pod = cluster.pod(`status-${status}`, blue);
    await proxy.set({ status, drop: true });
    const answer = await cluster.run("ADD", { ...pod, name: `other-${status}` });
    assert.equal(answer.json.code, 11, answer.stdout);
    assert.ok(answer.json.msg.includes(String(status)), answer.json.msg);
    await proxy.set({});
    await recovers(pod, `an ADD after ${status}`);
  });
}

test("watches that are dropped and expired are made up for by a list", async () => {
  await proxy.set({ expire: true, drop: true });
  cluster.api.apply(cluster.podNetwork("meanwhile", cluster.bridge("meanwhile", "10.77.0.0/16")));
  await sleep(1_000);
  await proxy.set({});
  const pod = cluster.pod("after-expiry", { "podnet.dev/networks": '[{"name":"meanwhile"}]' });
  await recovers(pod, "an ADD on the network");
});

test("a slow API does not show in an ADD of what is known", async () => {
  const pod = cluster.pod("slow", blue);
  await known(pod);
  await proxy.set({ delay: 1_500 });
  // The watches may still be on their way back from the faults before: then the pod is not known yet, and is asked for.
  let took = Number.POSITIVE_INFINITY;
  for (let attempt = 0; took >= 1_400 && attempt < 10; attempt += 1) {
    if (attempt > 0) await cluster.must("DEL", pod);
    const started = performance.now();
    await cluster.must("ADD", pod);
    took = performance.now() - started;
  }
  assert.ok(took < 1_400, `${Math.round(took)} ms`);
  await proxy.set({});
  assert.equal((await cluster.status(pod)).length, 1);
  await cluster.must("DEL", pod);
});

test("a status that could not be written is written after a restart", async () => {
  const pod = cluster.pod("unwritten", blue);
  await known(pod);
  cluster.api.must("annotate", "pod", "-n", "app", "unwritten", "podnet.dev/network-status-");
  await sleep(500);
  await proxy.set({ down: true });
  await cluster.must("ADD", pod);
  await cluster.daemon.kill();
  await proxy.set({});
  await cluster.daemon.restart();
  assert.equal((await cluster.status(pod))[0].name, "blue");
  await cluster.must("DEL", pod);
});

test("pods whose status is refused do not keep others from theirs", async () => {
  const stuck = ["s0", "s1", "s2", "s3", "s4"].map((name) => cluster.pod(name, blue));
  const other = cluster.pod("s5", blue);
  await proxy.set({ refuse: "/pods/s[0-4]/status" });
  for (const pod of stuck) await cluster.must("ADD", pod);
  await cluster.must("ADD", other);
  assert.equal((await cluster.status(other))[0].name, "blue");
  await proxy.set({});
  for (const pod of stuck) assert.equal((await cluster.status(pod))[0].name, "blue");
  for (const pod of [...stuck, other]) await cluster.must("DEL", pod);
});

test("a token that is empty, wrong for a while, then renewed needs no restart", async () => {
  const pod = cluster.pod("token", blue);
  writeToken("");
  await recovers(pod, "an ADD with the token before");
  writeToken("expired");
  await proxy.set({ down: true });
  await proxy.set({});
  const other = cluster.pod("token-2", blue);
  const answer = await cluster.run("ADD", other);
  assert.equal(answer.json?.code, 11, answer.stdout);
  assert.match(answer.json.msg, /401/);
  writeToken(tokens.podnet);
  await recovers(other, "an ADD with the new token");
});

test("started while the API is away: STATUS says which part is missing, DEL works", async () => {
  const pod = cluster.pod("restarted", blue);
  await cluster.must("ADD", pod);
  await proxy.set({ down: true });
  await cluster.daemon.stop();
  await cluster.daemon.restart();
  const status = await cluster.run("STATUS", pod);
  assert.equal(status.json?.code, 50, status.stdout);
  assert.match(
    status.json.msg,
    /default network: find PodNetwork "default": the API server can't be asked/,
  );
  await cluster.must("DEL", pod);
  assert.equal((await cluster.run("DEL", { ...pod, name: "never" })).status, 0);
  await proxy.set({});
  await cluster.eventually(async () => {
    const answer = await cluster.run("STATUS", pod);
    return answer.status === 0 ? true : undefined;
  }, "STATUS that is well");
});

test("the metrics tell of the watches, and of what is not written yet", async () => {
  const metrics = async (): Promise<string> => {
    const get = `const {request}=require("node:http");request({socketPath:${JSON.stringify(cluster.daemon.socket)},path:"/metrics"},(a)=>a.pipe(process.stdout)).end()`;
    return cluster.place.run(process.execPath, "-e", get);
  };
  const open = await cluster.eventually(async () => {
    const text = await metrics();
    return text.match(/^podnet_kube_watch_up\{kind="\w+"\} 1$/gm)?.length === 5 ? text : undefined;
  }, "five open watches");
  assert.match(open, /^podnet_kube_objects\{kind="PodNetwork"\} [2-9]/m);
  assert.match(open, /^podnet_status_waiting 0$/m);
  await proxy.set({ down: true });
  const shut = /^podnet_kube_watch_up\{kind="Pod"\} 0$/m;
  await cluster.eventually(
    async () => (shut.test(await metrics()) ? true : undefined),
    "a shut watch",
  );
  await proxy.set({});
});

test("a certificate of the API server that expired means a retriable error that says so, and recovery when it is renewed", async () => {
  const day = 86_400_000;
  const issue = async (now: number) =>
    await issueServingPair({ names: ["localhost"], lifetime: day, now });
  const [expired, good] = await Promise.all([issue(Date.now() - 2 * day), issue(Date.now())]);
  const file = (name: string) => join(cluster.api.folder, name);
  const use = ({ cert, key }: ServingPair) => writeFileSync(file("pair.pem"), cert + key);
  writeFileSync(file("authorities.pem"), expired.ca + good.ca);
  use(good);
  await using tls = await KubeProxy.start(cluster.api, 8002, file("pair.pem"));
  const kubeconfig = cluster.api.writeKubeconfig("tls", {
    cluster: {
      server: tls.server,
      "certificate-authority": file("authorities.pem"),
      // The certificate has no address.
      "tls-server-name": "localhost",
    },
    user: { token: tokens.podnet },
  });
  await cluster.daemon.stop();
  await cluster.startDaemon(kubeconfig);
  const pod = cluster.pod("certified", blue);
  await known(pod);
  await tls.set({ down: true });
  use(expired);
  await tls.set({});
  await cluster.must("ADD", pod);
  const answer = await cluster.run("ADD", { ...cluster.pod("late", blue), name: "unheard-of" });
  assert.equal(answer.json?.code, 11, answer.stdout);
  assert.match(answer.json.msg, /certificate has expired/);
  await cluster.must("DEL", pod);
  await tls.set({ down: true });
  use(good);
  await tls.set({});
  await recovers(cluster.pod("renewed", blue), "an ADD with the new certificate");
});

test("podnetd refuses to start with a cluster and without its node's name", async () => {
  await cluster.daemon.stop();
  const kubeconfig = cluster.api.kubeconfig("podnet");
  await assert.rejects(
    cluster.startDaemon(kubeconfig, { nodeName: undefined }),
    /this node's name is not known: set nodeName, or NODE_NAME/,
  );
});
