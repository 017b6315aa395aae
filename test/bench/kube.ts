import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ApiServer } from "../helpers/apiserver.ts";
import { Cluster, nodeName } from "../helpers/cluster.ts";
import { KubeProxy } from "../helpers/kube-proxy.ts";
import type { Place } from "../helpers/lab.ts";
import type { Effort, Line } from "./cases.ts";
import { median } from "./numbers.ts";
import { compile, Starter } from "./starter.ts";

const extras = [0, 1, 2, 4] as const;
const parallels = [1, 10, 50] as const;
/** Milliseconds that the API server takes longer to answer. */
const latencies = [0, 20] as const;
const elsewhere = 60_000;
const memoryBelow = 140;

interface Town {
  readonly cluster: Cluster;
  readonly proxy: KubeProxy;
  readonly starter: Starter;
  readonly places: readonly Place[];
}

/** podnetd against a real API server: how long an ADD takes, and how much memory a large cluster does. */
export async function kubeCase(effort: Effort): Promise<Line[]> {
  await using stack = new AsyncDisposableStack();
  const cluster = stack.use(await Cluster.start());
  const proxy = stack.use(await KubeProxy.start(cluster.api));
  const names = ["n1", "n2", "n3", "n4"];
  cluster.api.apply(
    ...names.map((name, index) =>
      cluster.podNetwork(name, cluster.bridge(name, `10.10${index}.0.0/16`)),
    ),
  );
  const kubeconfig = cluster.api.writeKubeconfig("proxied", {
    cluster: { server: proxy.server },
    user: { token: "podnet-token" },
  });
  await cluster.startDaemon(kubeconfig);
  const program = compile("starter.c", cluster.lab.folder());
  const starter = stack.use(new Starter(cluster.place, program, cluster.lab.folder()));
  const places = Array.from({ length: Math.max(...parallels) }, () => cluster.lab.pod());
  const town = { cluster, proxy, starter, places };
  const lines: Line[] = [];
  for (const extra of extras) lines.push(...(await timesOf(town, extra, effort)));
  lines.push(...(await memoryOf(town, effort)));
  return lines;
}

interface Wish {
  readonly pod: string;
  readonly place: Place;
}

function job({ cluster, starter }: Town, verb: string, { pod, place }: Wish): string {
  const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=${pod}`;
  const daemonSocket = cluster.daemon.socket;
  return starter.job({
    program: resolve("dist/bin/podnet"),
    env: {
      CNI_COMMAND: verb,
      CNI_CONTAINERID: `c-${pod}`,
      CNI_NETNS: place.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: "/nowhere",
      CNI_ARGS: args,
    },
    config: { cniVersion: "1.0.0", name: "podnet", type: "podnet", daemonSocket },
  });
}

function podObject(name: string, networks: readonly string[], node = nodeName): object {
  const list = JSON.stringify(networks.map((network) => ({ name: network })));
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "app", name, annotations: { "podnet.dev/networks": list } },
    spec: { nodeName: node, containers: [{ name: "c", image: "none" }] },
  };
}

/** ADDs of pods with the default network and so many more, by how many come at once and how slow the API is. */
async function timesOf(town: Town, extra: number, effort: Effort): Promise<Line[]> {
  const { cluster, proxy, starter, places } = town;
  const networks = ["default", "n1", "n2", "n3", "n4"].slice(0, 1 + extra);
  const wishes = places.map((place, index) => ({ pod: `e${extra}-${index}`, place }));
  cluster.api.apply(...wishes.map(({ pod }) => podObject(pod, networks)));
  await watched(cluster, wishes.length * (1 + extras.indexOf(extra as 0)));
  const [adds, dels] = ["ADD", "DEL"].map((verb) => wishes.map((wish) => [job(town, verb, wish)]));
  if (adds === undefined || dels === undefined) return [];
  const lines: Line[] = [];
  for (const parallel of parallels) {
    const times = new Map<number, number[]>(latencies.map((delay) => [delay, []]));
    const rounds = Math.ceil(effort.rounds / Math.max(parallel, 10));
    const count = Math.max(parallel, 10);
    // In turn: what else happens on the machine changes from second to second.
    for (let round = 0; round < Math.max(rounds, 3); round += 1) {
      for (const [delay, all] of times) {
        await proxy.set({ delay });
        all.push(...(await starter.run(adds.slice(0, count), parallel)).groupsMs);
        await starter.run(dels.slice(0, count), 10);
      }
    }
    await proxy.set({});
    lines.push(...linesOf(`ADD with ${extra} more, ${parallel} at once`, times));
  }
  return lines;
}

function linesOf(what: string, times: ReadonlyMap<number, readonly number[]>): Line[] {
  const lines: Line[] = [...times].flatMap(([delay, all]) => {
    const where = `${what}${delay === 0 ? "" : `, API ${delay} ms slower`}`;
    return [
      { what: `${where}, p50`, unit: "ms", podnet: median(all) },
      { what: `${where}, p99`, unit: "ms", podnet: late(all) },
    ];
  });
  const [fast = 0, slow = 0] = [...times.values()].map(median);
  // A wait for the API would show as all of its latency; a tenth more is the machine's own unrest.
  const reached = slow - fast < Math.max(10, fast / 10);
  const reach = "below half the API's 20, or a tenth";
  lines.push({
    what: `${what}, the slower API's part`,
    unit: "ms",
    podnet: slow - fast,
    reach,
    reached,
  });
  return lines;
}

function late(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Number.NaN;
}

/** Until podnetd has seen so many pods of its node. */
async function watched(cluster: Cluster, count: number): Promise<void> {
  const script = `const {request}=require("node:http");request({socketPath:${JSON.stringify(cluster.daemon.socket)},path:"/metrics"},(a)=>a.pipe(process.stdout)).end()`;
  for (const until = Date.now() + 60_000; ; await sleep(200)) {
    const text = cluster.place.run(process.execPath, "-e", script);
    const found = Number(/^podnet_kube_objects\{kind="Pod"\} (\d+)/m.exec(text)?.[1]);
    if (found >= count) return;
    if (Date.now() > until) throw new Error(`podnetd has seen ${found} pods of ${count}`);
  }
}

/** 250 pods attached on this node, 60,000 in the cluster; a short run has fewer on the node. */
async function memoryOf(town: Town, effort: Effort): Promise<Line[]> {
  const { cluster } = town;
  await fillCluster(cluster.api);
  const names = Array.from({ length: effort.attached }, (_, index) => `m-${index}`);
  const before = extras.length * town.places.length;
  await cluster.daemon.stop();
  await cluster.daemon.restart();
  for (let from = 0; from < names.length; from += 100)
    cluster.api.apply(
      ...names.slice(from, from + 100).map((name) => podObject(name, ["default", "n1"])),
    );
  await watched(cluster, before + names.length);
  const wishes = names.map((pod) => ({ pod, place: cluster.lab.pod() }));
  const idle = residentMib(cluster);
  await town.starter.run(
    wishes.map((wish) => [job(town, "ADD", wish)]),
    10,
  );
  // A collection of the watch's garbage, and the statuses' writing.
  await sleep(10_000);
  const podnet = residentMib(cluster);
  const what = `podnetd resident size, ${elsewhere} pods elsewhere`;
  return [
    { what: `${what}, none attached`, unit: "MiB", podnet: idle },
    {
      what: `${what}, ${effort.attached} attached`,
      unit: "MiB",
      podnet,
      reach: `below ${memoryBelow}`,
      reached: podnet < memoryBelow,
    },
  ];
}

function residentMib({ daemon }: Cluster): number {
  const status = readFileSync(`/proc/${daemon.pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}

/**
 * Pods of other nodes, written to etcd itself (its JSON gateway; the API server reads stored JSON): through the API they would take
 * longer than all the rest.
 */
async function fillCluster({ node, etcd }: ApiServer): Promise<void> {
  const script = `
    const encode = (text) => Buffer.from(text).toString("base64");
    const pod = (index) => JSON.stringify({
      apiVersion: "v1", kind: "Pod",
      metadata: { namespace: "app", name: "far-" + index, uid: crypto.randomUUID(),
        creationTimestamp: "2026-01-01T00:00:00Z", annotations: { "podnet.dev/networks": '[{"name":"default"}]' } },
      spec: { nodeName: "node-" + (index % 500), restartPolicy: "Always", dnsPolicy: "ClusterFirst",
        schedulerName: "default-scheduler", containers: [{ name: "c", image: "none" }] },
      status: { phase: "Running", podIP: "10.9.0.1" } });
    for (let from = 0; from < ${elsewhere}; from += 100) {
      const success = Array.from({ length: 100 }, (_, index) => ({ requestPut:
        { key: encode("/registry/pods/app/far-" + (from + index)), value: encode(pod(from + index)) } }));
      const answer = await fetch("${etcd}/v3/kv/txn", { method: "POST", body: JSON.stringify({ success }) });
      if (!answer.ok) throw new Error(await answer.text());
    }`;
  node.run(process.execPath, "--input-type=module", "-e", script);
}
