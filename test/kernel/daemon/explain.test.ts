import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab } from "../../helpers/lab.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";

// `podnetctl explain` and `podnetctl log-level` against a daemon without a cluster.
let node: NodeFixture;

/** A delegate whose ADD lasts as long as a file named "wait" lies beside it. */
const patient = `#!/bin/sh
cat >/dev/null
while [ "$CNI_COMMAND" = ADD ] && [ -e "\${0%/*}/wait" ]; do sleep 0.1; done
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","interfaces":[],"ips":[]}'
`;

let tools: Lab;
let bin = "";

before(async () => {
  tools = new Lab();
  bin = tools.folder();
  writeFileSync(join(bin, "patient"), patient, { mode: 0o755 });
  node = await NodeFixture.start({
    withDefault: true,
    binDirs: [bin],
    networks: { patient: podNetwork("patient", { type: "patient" }) },
  });
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

const ctl = (...args: readonly string[]) =>
  podnetctl(node.place, ["--socket", node.daemon.socket, ...args]);

const args = (name: string) =>
  `IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=${name};K8S_POD_UID=u-${name}`;

const annotated = (text: string) => ({
  runtimeConfig: {
    "io.kubernetes.cri.pod-annotations": {
      "k8s.v1.cni.cncf.io/networks": text,
      "example.com/token": "s3cret-annotation",
    },
  },
});

test("explain: a pod that failed and then came up: asked verbatim, resolved, done, each failure with its code and what to do", async () => {
  const asked = '[{"name":"default"},{"name":"green"}]';
  const own = {
    runtimeConfig: { "io.kubernetes.cri.pod-annotations": { "podnet.dev/networks": asked } },
  };
  const first = node.sandbox("try-1");
  assert.equal((await node.run("ADD", first, { args: args("web"), config: own })).status, 1);
  const before = await ctl("explain", "web", "-n", "team-a");
  assert.equal(before.status, 0, before.stderr);
  assert.ok(before.stdout.includes(`podnet.dev/networks: ${asked}`));
  assert.match(
    before.stdout,
    /RESOLVED\n {2}refused: .*PodNetwork "green" not found.* \(code 100\)\n {2}to do: create it/,
  );
  assert.match(before.stdout, /CALLS\n {2}\S+ ADD try-1 [\d.]+ ms: code 100 \(podNetworkMissing\)/);
  const { parameters } = { parameters: { type: "bridge", bridge: "br-green" } };
  node.daemon.writeNetwork("green", {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name: "green" },
    spec: { parameters },
  });
  const second = node.sandbox("try-2");
  await node.must("ADD", second, { args: args("web"), config: own });
  const found = JSON.parse((await ctl("explain", "web", "-n", "team-a", "-o", "json")).stdout);
  assert.equal(found.asked.annotations["podnet.dev/networks"], asked);
  assert.deepEqual(found.resolved.source, "record");
  assert.deepEqual(
    found.resolved.networks.map((row: { network: string; plugins: string[] }) => [
      row.network,
      row.plugins,
    ]),
    [
      ["default", ["bridge"]],
      ["green", ["bridge"]],
    ],
  );
  assert.deepEqual(
    found.done.map((row: { containerId: string; state: string }) => [row.containerId, row.state]),
    [
      ["try-2", "attached"],
      ["try-2", "attached"],
    ],
  );
  assert.deepEqual(
    found.attempts.map((call: { containerId: string; code?: number }) => [
      call.containerId,
      call.code,
    ]),
    [
      ["try-1", 100],
      ["try-2", undefined],
    ],
  );
  const byContainer = await ctl("explain", "--container", "try-2");
  assert.match(byContainer.stdout, /team-a\/web {2}uid u-web/);
  await node.must("DEL", second, { args: args("web") });
});

test("explain: nothing is known, and command lines that make no sense", async () => {
  const nobody = await ctl("explain", "nobody");
  assert.equal(nobody.status, 1);
  assert.match(
    nobody.stderr,
    /explain pod "default\/nobody": podnet has no record of it.*\(code 3\)/,
  );
  assert.equal((await ctl("explain")).status, 2);
  assert.equal((await ctl("explain", "a", "--container", "b")).status, 2);
});

test("log-level: read, set, refused; more is in the log at once, and no secret of the pod", async () => {
  assert.equal((await ctl("log-level")).stdout, "info\n");
  const wrong = await ctl("log-level", "loud");
  assert.equal(wrong.status, 2);
  assert.match(wrong.stderr, /Allowed choices are trace, debug, info, warn, error, silent/);
  assert.equal((await ctl("log-level", "trace")).stdout, "trace\n");
  assert.match(node.daemon.log, /"before":"info","level":"trace","msg":"log level changed"/);
  await node.run("STATUS", node.sandbox("s"));
  assert.match(node.daemon.log, /"level":"debug".*"verb":"STATUS"/);
  const pod = node.sandbox("annotated");
  await node.run("ADD", pod, { args: args("talks"), config: annotated("team-a/none") });
  const explained = await ctl("explain", "talks", "-n", "team-a", "-o", "json");
  assert.equal(explained.status, 0);
  assert.doesNotMatch(node.daemon.log + explained.stdout, /s3cret/);
  await ctl("log-level", "info");
});

test("SIGUSR2 switches to debug and back", async () => {
  const said = async (what: RegExp): Promise<void> => {
    for (let turn = 0; turn < 100 && !what.test(node.daemon.log); turn += 1) await sleep(50);
    assert.match(node.daemon.log, what);
  };
  process.kill(node.daemon.pid, "SIGUSR2");
  await said(/"before":"info","level":"debug"/);
  process.kill(node.daemon.pid, "SIGUSR2");
  await said(/"before":"debug","level":"info"/);
  assert.equal((await ctl("log-level")).stdout, "info\n");
});

async function metrics(): Promise<string> {
  const { stdout } = await podnetctl(node.place, [], () => [
    ...["curl", "-s", "--unix-socket", node.daemon.socket, "http://podnetd/metrics"],
  ]);
  return stdout;
}

async function eventually(what: RegExp): Promise<void> {
  let text = "";
  for (let turn = 0; turn < 100 && !what.test(text); turn += 1) {
    await sleep(100);
    text = await metrics();
  }
  assert.match(text, what);
}

test("metrics: codes are counted by name, and the version is told", async () => {
  await node.run("ADD", node.sandbox("failing"), { networks: ["missing"] });
  const text = await metrics();
  assert.match(
    text,
    /podnet_cni_errors_total\{verb="ADD",code="100",name="podNetworkMissing"\} [1-9]/,
  );
  assert.match(text, /podnet_build_info\{version="[\d.]+",node="v\d+\.[\d.]+"\} 1/);
  assert.match(text, /podnet_leaks\{kind="address"\} 0/);
});

test("metrics: a DEL that waits for its container's lock is in the queue, and the oldest operation has an age", async () => {
  const pod = node.sandbox("slow");
  writeFileSync(join(bin, "wait"), "");
  const adding = node.run("ADD", pod, { networks: ["patient"] });
  await eventually(/podnet_operations_running\{verb="ADD"\} 1/);
  const deleting = node.run("DEL", pod);
  await eventually(/podnet_queue_depth\{verb="DEL"\} 1/);
  assert.match(await metrics(), /podnet_queue_depth\{verb="ADD"\} 0/, "what runs does not wait");
  await eventually(
    /podnet_oldest_operation_seconds\{verb="DEL"\} 0\.\d*[1-9]|podnet_oldest_operation_seconds\{verb="DEL"\} [1-9]/,
  );
  rmSync(join(bin, "wait"));
  assert.equal((await adding).status, 0);
  assert.equal((await deleting).status, 0);
  await eventually(/podnet_queue_depth\{verb="DEL"\} 0/);
});
