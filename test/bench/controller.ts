// node test/bench/controller.ts [--short]: podnet-controller against a real API server: 1,000 PodNetworks and 10,000 pods, objects only.
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { installWebhooks, webhookFlag, webhooksServed } from "../helpers/admission.ts";
import { ControlledApi, ControllerProcess } from "../helpers/controller.ts";
import { type Effort, fullEffort, type Line, shortEffort } from "./cases.ts";

const metrics = "127.0.0.1:9478";
const flags = ["--no-leader-elect", "--metrics", metrics, "--log-level", "info"];

/** As it is shipped: from source it has the compiler in its memory. */
const built = resolve("dist/bin/podnet-controller");

/** Objects that are made at once. */
const makers = 24;

async function each(count: number, work: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const maker = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: makers }, maker));
}

function read(at: ControlledApi): string {
  const get = `require("node:http").get("http://${metrics}/metrics",(a)=>a.pipe(process.stdout)).on("error",()=>{})`;
  return at.server.node.run(process.execPath, "-e", get);
}

/** Writes so far, and objects that wait. */
function progress(at: ControlledApi): { writes: number; waiting: number } {
  let writes = 0;
  let waiting = 0;
  for (const line of read(at).split("\n")) {
    const value = Number(line.split(" ").at(-1));
    if (line.startsWith("podnet_controller_writes_total{")) writes += value;
    if (line.startsWith("podnet_controller_queue_depth{")) waiting += value;
  }
  return { writes, waiting };
}

/** Waits until so many writes were made, then a little for those that should not be; gives the seconds until then, and the writes. */
async function settle(
  at: ControlledApi,
  least: number,
): Promise<{ seconds: number; writes: number }> {
  const started = performance.now();
  let seconds = 0;
  for (;;) {
    const { writes, waiting } = progress(at);
    seconds = (performance.now() - started) / 1000;
    if (writes >= least && waiting === 0) break;
    if (seconds > 240) throw new Error(`${writes} of ${least} writes, ${waiting} waiting`);
    await sleep(200);
  }
  await sleep(3_000);
  return { seconds, writes: progress(at).writes };
}

function residentOf({ pid }: ControllerProcess, key: "VmRSS" | "VmHWM"): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`${key}:\\s+(\\d+)`).exec(status)?.[1]) / 1024;
}

async function fill(at: ControlledApi, networks: number, pods: number): Promise<void> {
  await each(networks, (index) => at.network(`net-${index}`));
  await each(pods, (index) =>
    at.pod(`pod-${index}`, [{ name: "default" }, { name: `net-${index % networks}` }]),
  );
}

/** From the start until every object was listed and nothing is left to write. */
async function start(at: ControlledApi, writes: number, more: readonly string[] = []) {
  const began = performance.now();
  const controller = new ControllerProcess(at.server, [...flags, ...more], { program: built });
  await controller.said('"ready"');
  const settled = await settle(at, writes);
  return { controller, seconds: (performance.now() - began) / 1000 - 3, writes: settled.writes };
}

/** A row; with `most` it has something to reach. */
function line([what, unit]: readonly [string, string], podnet: number, most?: number): Line {
  return {
    what: `controller: ${what}`,
    unit,
    podnet: Math.round(podnet * 100) / 100,
    ...(most === undefined ? {} : { reach: `<= ${most}`, reached: podnet <= most }),
  };
}

export async function controllerCase(effort: Effort): Promise<Line[]> {
  const [networks, pods] = effort.rounds === fullEffort.rounds ? [1_000, 10_000] : [100, 1_000];
  const changed = networks / 10;
  await using at = await ControlledApi.start();
  await fill(at, networks, pods);
  // A network: its finalizer and its status. The default network: itself and its status.
  const expected = 2 * networks + 2;
  const cold = await start(at, expected);
  const size = `${networks} networks, ${pods} pods`;
  const lines = [
    line([`${size}: first start until all is written`, "s"], cold.seconds),
    line(
      ["writes for each object that was there first (finalizer, status)", "writes"],
      cold.writes / (networks + 1),
      2,
    ),
  ];
  await cold.controller.stop();
  installWebhooks(at);
  const warm = await start(at, 0, ["--webhook", webhookFlag]);
  await using controller = warm.controller;
  lines.push(
    line(["start with nothing to do", "s"], warm.seconds),
    line(["writes of that start", "writes"], warm.writes, 0),
    line(["memory (RSS)", "MB"], residentOf(controller, "VmRSS")),
    line(["memory at most", "MB"], residentOf(controller, "VmHWM")),
  );
  await each(changed, (index) =>
    at.api.patch(`podnetworks net-${index}`, { spec: { enabled: false } }),
  );
  const disabled = await settle(at, changed);
  lines.push(
    line(["writes for a network that is disabled", "writes"], disabled.writes / changed, 1),
  );
  lines.push(await newNetworks(at, changed, disabled.writes));
  const before = progress(at).writes;
  await each(changed, (index) => at.pod(`new-${index}`, [{ name: `net-${index}` }]));
  const after = await settle(at, before + changed);
  const added = (after.writes - before) / changed;
  lines.push(line(["writes for a pod that comes to a network", "writes"], added, 1));
  return lines;
}

/** The finalizer comes from the webhook. */
async function newNetworks(at: ControlledApi, count: number, before: number): Promise<Line> {
  await webhooksServed(at);
  await each(count, (index) => at.network(`late-${index}`));
  const { writes } = await settle(at, before + count);
  return line(
    ["writes for a new network, with the webhooks", "writes"],
    (writes - before) / count,
    1,
  );
}

if (import.meta.main) {
  const before = loadavg();
  const effort = process.argv.includes("--short") ? shortEffort : fullEffort;
  const lines = await controllerCase(effort);
  process.stdout.write(
    `${JSON.stringify({ lines, load: { before, after: loadavg() } }, null, 1)}\n`,
  );
}
