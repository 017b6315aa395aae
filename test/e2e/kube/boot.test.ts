import assert from "node:assert/strict";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Cluster, type TestPod } from "../../helpers/cluster.ts";
import { ConfWatch } from "../../helpers/conf-watch.ts";
import { KubeProxy } from "../../helpers/kube-proxy.ts";
import { type PluginAnswer, runPlugin } from "../../helpers/plugin-call.ts";

// A node boots: podnet's own configuration is there from before, and podnetd, the API server and the default network's configuration and
// executable come late, in any order, the configuration as half a file at first. A kubelet asks all the time. Until everything is there
// STATUS says in a line what is missing and no pod starts, least of all with fewer networks than it asked for; then all is well by itself.

const stack = new AsyncDisposableStack();
let cluster: Cluster;
let proxy: KubeProxy;
let bin: string;
let sandboxes = 0;

/** What has come since the boot. */
interface Here {
  readonly daemon: boolean;
  readonly api: boolean;
  readonly file: "none" | "half" | "whole";
  readonly executable: boolean;
}
type Arrival = "daemon" | "api" | "half a file" | "whole file" | "executable";

const nothing: Here = { daemon: false, api: false, file: "none", executable: false };

const plugin: readonly Arrival[] = ["half a file", "whole file", "executable"];
const orders: readonly (readonly Arrival[])[] = [
  ["daemon", "api", ...plugin],
  ["daemon", ...plugin, "api"],
  ["api", "daemon", ...plugin],
  ["api", ...plugin, "daemon"],
  [...plugin, "daemon", "api"],
  [...plugin, "api", "daemon"],
  ["executable", "half a file", "daemon", "api", "whole file"],
  ["half a file", "daemon", "executable", "whole file", "api"],
];

before(async () => {
  cluster = stack.use(await Cluster.start());
  proxy = stack.use(await KubeProxy.start(cluster.api));
  bin = cluster.lab.folder();
  cluster.api.must("delete", "podnetwork", "default", "--wait=true");
  // As the controller makes it: it is what the node's own configuration says.
  cluster.api.apply({ ...cluster.podNetwork("default", {}), spec: { enabled: true } });
  await proxy.set({ down: true });
  const config = { install: true, selectionPolicy: "fail" };
  await cluster.startDaemon(cluster.api.kubeconfig("podnet", proxy.server), config, [bin]);
  await arrive("api");
  for (const arrival of plugin) await arrive(arrival);
  await cluster.eventually(
    async () => ((await status()).status === 0 ? true : undefined),
    "a node",
  );
});
after(() => stack.disposeAsync());

const agentFile = () => join(cluster.daemon.confDir, "10-agent.conflist");
const watched = () => ({
  confDir: cluster.daemon.confDir,
  confName: "00-podnet.conflist",
  stub: join(bin, "podnet"),
});

/** A chained plugin, as the agent of a default network brings it to each node. */
const agent = `#!${process.execPath}
const config = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const { cniVersion, prevResult } = config;
const versions = { cniVersion, supportedVersions: ["0.4.0", "1.0.0", "1.1.0"] };
const answers = { VERSION: versions, ADD: { ...prevResult, cniVersion } };
const answer = answers[process.env.CNI_COMMAND];
if (answer !== undefined) console.log(JSON.stringify(answer));
`;

async function arrive(arrival: Arrival): Promise<void> {
  const list = { cniVersion: "1.0.0", name: "agent" };
  const plugins = [cluster.bridge("agent", "10.45.0.0/16"), { type: "agent" }];
  const text = JSON.stringify({ ...list, plugins });
  if (arrival === "daemon") await cluster.daemon.restart();
  else if (arrival === "api") await proxy.set({});
  else if (arrival === "half a file") writeFileSync(agentFile(), text.slice(0, 40));
  else if (arrival === "whole file") writeFileSync(agentFile(), text);
  else {
    writeFileSync(join(bin, "agent.new"), agent, { mode: 0o755 });
    renameSync(join(bin, "agent.new"), join(bin, "agent"));
  }
}

/** The node goes down with everything that is to come late. */
async function goDown(): Promise<void> {
  await cluster.daemon.kill();
  await proxy.set({ down: true });
  rmSync(agentFile());
  rmSync(join(bin, "agent"));
}

const withArrival = (here: Here, arrival: Arrival): Here => ({
  daemon: here.daemon || arrival === "daemon",
  api: here.api || arrival === "api",
  executable: here.executable || arrival === "executable",
  file: arrival === "half a file" ? "half" : arrival === "whole file" ? "whole" : here.file,
});

function call(verb: string, more: object = {}): Promise<PluginAnswer> {
  // A runtime waits as long as its configuration says; here an answer is wanted of every moment.
  const config = { daemonWait: 1 };
  return runPlugin(cluster.daemon.call({ verb, ifName: "eth0", config, ...more }));
}

const status = () => call("STATUS");

/** What is missing, as STATUS says it: the first thing that a pod would miss. */
function missing({ daemon, api, file, executable }: Here): RegExp | undefined {
  if (!daemon) return /^ask podnetd at .*check that podnetd runs on this node/;
  if (!api) return /^default network: find PodNetwork "default": the API server can't be asked/;
  if (file === "none") return /^default network: .*no other network configuration is there yet/;
  // In the words of who looked: the one who waits for a default network, or the one who reads it anew.
  if (file === "half") return /^default network: .*"10-agent\.conflist" (can't be used|read )/;
  return executable ? undefined : /^default network: find plugin "agent": no executable in/;
}

/** As a kubelet: a sandbox of its own for each attempt, which is deleted. The answer's code; 0: the pod has both its networks. */
async function tried({ name, uid }: Pick<TestPod, "name" | "uid">): Promise<number> {
  sandboxes += 1;
  const place = cluster.lab.pod();
  const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=${name};K8S_POD_UID=${uid}`;
  const sandbox = { containerId: `box-${sandboxes}`, netns: place.path, args };
  const answer = await call("ADD", sandbox);
  const links: { ifname: string }[] = JSON.parse(place.run("ip", "-j", "link"));
  const names = links.map(({ ifname }) => ifname).filter((one) => one !== "lo");
  const expected = answer.status === 0 ? ["eth0", "net1"] : [];
  assert.deepEqual(names.toSorted(), expected, `interfaces after: ${answer.stdout}`);
  await call("DEL", sandbox);
  cluster.lab.remove(place);
  return answer.status === 0 ? 0 : answer.json?.code;
}

/** STATUS says this reason in one line with code 50, or that all is well, by itself. */
async function says(reason: RegExp | undefined): Promise<void> {
  let last = "";
  const holds = async (): Promise<true | undefined> => {
    const answer = await status();
    last = answer.stdout;
    if (reason === undefined) return answer.status === 0 ? true : undefined;
    const { code, msg } = answer.json ?? {};
    return code === 50 && reason.test(msg) && !msg.includes("\n") ? true : undefined;
  };
  await cluster.eventually(holds, `STATUS of ${reason ?? "no fault"}`).catch((error: unknown) => {
    throw new Error(`STATUS says: ${last}`, { cause: error });
  });
}

for (const [number, order] of orders.entries()) {
  test(`a node boots: ${order.join(", ")}`, async () => {
    const annotation = '[{"name":"default"},{"name":"blue"}]';
    const pod = cluster.pod(`boot-${number}`, { "podnet.dev/networks": annotation });
    await goDown();
    const watch = await ConfWatch.start(watched());
    try {
      let here = nothing;
      for (const arrival of [undefined, ...order]) {
        if (arrival !== undefined) {
          await arrive(arrival);
          here = withArrival(here, arrival);
        }
        const reason = missing(here);
        await says(reason);
        if (reason === undefined) break;
        const code = await tried(pod);
        assert.ok(code === 11 || code === 50, `code ${code} with ${JSON.stringify(here)}`);
      }
      const recovered = async () => ((await tried(pod)) === 0 ? true : undefined);
      await cluster.eventually(recovered, "a pod with both networks");
    } finally {
      const { misses } = await watch.end();
      assert.deepEqual(misses, []);
    }
  });
}
