import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../helpers/daemon.ts";
import { reportFigures } from "../helpers/faults-report.ts";
import { Lab } from "../helpers/lab.ts";
import { membersDuring, memory, percentile } from "../helpers/load-figures.ts";
import { NodeFixture, type Sandbox } from "../helpers/node-fixture.ts";
import { openFiles } from "../helpers/state.ts";

// More than a node ever gets at once, with a daemon in 192 MiB. FAULTS=all: 250 pods and 10,000 cycles.

const isFull = process.env["FAULTS"] === "all";
const pods = Number(process.env["LOAD_PODS"] ?? (isFull ? 250 : 50));
const cycles = Number(process.env["LOAD_CYCLES"] ?? (isFull ? 10_000 : 500));
const mebibyte = 2 ** 20;
const limit = 192 * mebibyte;
/** ADDs that run side by side in so much memory (gateSizes). */
const side = 32;
const networks = ["blue", "red", "dual", "greedy"];

/** Slow, and as greedy as a container tool in Go: 40 MB for a fifth of a second. */
const greedy = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit ;;
  ADD) perl -e '$x = "x" x 40_000_000; select undef, undef, undef, 0.2'
       echo '{"cniVersion":"1.1.0","interfaces":[],"ips":[]}' ;;
esac
`;

/** Attaches nothing, and only when its file is there. */
const patient = (file: string) => `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit ;;
  ADD) while [ ! -e ${file} ]; do sleep 0.2; done
       echo '{"cniVersion":"1.1.0","interfaces":[],"ips":[]}' ;;
esac
`;

let node: NodeFixture;
let tools: Lab;
let go: string;
let group: string | undefined;

before(async () => {
  tools = new Lab();
  const bin = join(tools.folder(), "bin");
  mkdirSync(bin);
  go = join(bin, "go");
  writeFileSync(join(bin, "greedy"), greedy, { mode: 0o755 });
  writeFileSync(join(bin, "patient"), patient(go), { mode: 0o755 });
  node = await NodeFixture.start({
    binDirs: [bin],
    networks: {
      greedy: podNetwork("greedy", { type: "greedy" }),
      patient: podNetwork("patient", { type: "patient" }),
    },
    logLevel: "warn",
    metrics: "127.0.0.1:9464",
  });
  group = confine(node.daemon.pid);
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
  if (group !== undefined) rmdirSync(group);
});

/** Puts the daemon, not what it starts, under the memory limit. undefined where no cgroup can be made. */
function confine(pid: number): string | undefined {
  for (const [root, file] of [
    ["/sys/fs/cgroup/memory", "memory.limit_in_bytes"],
    ["/sys/fs/cgroup", "memory.max"],
  ] as const) {
    const folder = join(root, `podnet-test-${process.pid}`);
    try {
      mkdirSync(folder);
      writeFileSync(join(folder, file), String(limit));
      writeFileSync(join(folder, "cgroup.procs"), String(pid));
      return folder;
    } catch {
      // The other hierarchy, or none.
    }
  }
  return undefined;
}

test(`${pods} ADDs of four networks at once, a fifth of whose callers die: all attached once, DEL among them, within ${limit / mebibyte} MiB`, async () => {
  assert.ok(group !== undefined, "no memory cgroup can be made");
  const { pid } = node.daemon;
  const early = [0, 1, 2, 3, 4].map((number) => node.sandbox(`early-${number}`));
  for (const pod of early) await node.must("ADD", pod, { networks: ["blue"] });
  const crowd = Array.from({ length: pods }, (_, number) => node.sandbox(`crowd-${number}.`));
  let attached = 0;
  let died = 0;
  const adds = crowd.map(async (pod, number) => {
    // A runtime whose caller died comes again with the same ids, until it has its answer.
    const first =
      number % 5 === 0 ? await node.run("ADD", pod, { networks, seconds: 3 }) : undefined;
    const before = first === undefined ? [] : addressesOf(pod);
    if (first?.status === null) died += 1;
    const answer = await node.must("ADD", pod, { networks, seconds: 400 });
    for (const address of before) assert.ok(hasAddress(answer, address), `${pod.id}: ${address}`);
    attached += 1;
    return [pod.id, answer] as const;
  });
  const inside = membersDuring(group, Promise.allSettled(adds));
  await sleep(1_000);
  const firstDels = Promise.all(early.map((pod) => node.must("DEL", pod, { seconds: 300 }))).then(
    () => attached,
  );
  const answers = await Promise.all(adds);
  assert.ok((await firstDels) < pods, "DEL waited for all ADDs");
  assert.equal(node.daemon.pid, pid);
  process.kill(pid, 0);
  assert.equal(node.held("blue").length, pods);
  assert.equal(node.held("red").length, pods);
  assert.equal(node.held("dual").length, pods * 2);
  assert.equal(node.records().length, pods);
  const addresses = answers.flatMap(([, { ips }]) =>
    ips.map((ip: { address: string }) => ip.address),
  );
  assert.equal(new Set(addresses).size, pods * 4, "an address was given out twice");
  await sameAnswers(crowd, new Map(answers));
  assert.deepEqual(
    (await inside).filter((name) => /perl|greedy|^sh$/.test(name)),
    [],
  );
  const p99 = percentile(metrics(), 0.99);
  assert.ok(p99 < Number.POSITIVE_INFINITY, "p99 is beyond the buckets");
  const { most } = memory(pid);
  assert.ok(most < limit, `${most} bytes`);
  reportFigures({
    "ADDs of four networks at once max": pods,
    "callers that died and came again max": died,
    "p99 of these ADDs as /metrics has it, s max": p99,
    "memory at the load, MiB max": Math.round(most / mebibyte),
  });
});

/** What the files of addresses say of a sandbox. */
function addressesOf({ id }: Sandbox): string[] {
  const found = spawnSync("grep", ["-rl", `^${id}`, node.addresses], { encoding: "utf8" });
  return found.stdout.split("\n").flatMap((path) => (path === "" ? [] : [basename(path)]));
}

function hasAddress(answer: { readonly ips: readonly { readonly address: string }[] }, ip: string) {
  return answer.ips.some(({ address }) => address.split("/")[0] === ip);
}

function metrics(): string {
  return node.place.run("curl", "-s", "http://127.0.0.1:9464/metrics");
}

async function sameAnswers(crowd: readonly Sandbox[], answers: ReadonlyMap<string, unknown>) {
  for (const pod of crowd.filter((_, number) => number % 5 === 0)) {
    assert.deepEqual(await node.must("ADD", pod, { networks }), answers.get(pod.id), pod.id);
  }
}

test("ADDs that came first are done first, but for what runs side by side", async () => {
  const crowd = (name: string, size: number) =>
    Array.from({ length: size }, (_, number) => node.sandbox(`${name}-${number}`));
  const [early, late] = [crowd("early", side * 1.5), crowd("late", side * 3)];
  const done: string[] = [];
  const attach = async (pod: Sandbox) => {
    await node.must("ADD", pod, { networks: ["blue", "patient"], seconds: 300 });
    done.push(pod.id);
  };
  const first = early.map(attach);
  await queued(early.length);
  const second = late.map(attach);
  await queued(early.length + late.length);
  assert.equal(done.length, 0);
  writeFileSync(go, "");
  await Promise.all([...first, ...second]);
  const last = done.findLastIndex((id) => id.startsWith("early"));
  const passed = done.slice(0, last).filter((id) => id.startsWith("late")).length;
  assert.ok(passed < side * 1.5, `${passed} late ones were done before the last early one`);
  await Promise.all([...early, ...late].map((pod) => node.must("DEL", pod, { seconds: 300 })));
  reportFigures({ "late ADDs done before the last early one max": passed });
});

/** Resolves when so many ADDs run or wait. */
async function queued(count: number): Promise<void> {
  for (;;) {
    const text = metrics();
    const gauge = (name: string) =>
      Number(new RegExp(`^${name}\\{verb="ADD"\\} (\\d+)$`, "m").exec(text)?.[1]);
    if (gauge("podnet_queue_depth") + gauge("podnet_operations_running") >= count) return;
    await sleep(50);
  }
}

test(`a daemon that is killed with ${pods} pods attached answers again`, async () => {
  const pod = node.sandbox("after-restart");
  await node.daemon.kill();
  const started = performance.now();
  const up = node.daemon.restart();
  await node.must("ADD", pod, { networks: ["blue"] });
  const ms = Math.round(performance.now() - started);
  await up;
  await node.must("DEL", pod);
  reportFigures({ [`daemon start to the first ADD answered with ${pods} pods, ms max`]: ms });
});

test("all of them are deleted at once, and nothing is left", async () => {
  const ids = node.records().map((name) => name.replace("@eth0.json", ""));
  const gone = node.sandbox("gone");
  await Promise.all(ids.map((id) => node.must("DEL", { ...gone, id }, { seconds: 300 })));
  for (const name of ["blue", "red", "dual"]) assert.deepEqual(node.held(name), []);
  assert.deepEqual(node.records(), []);
  const ends = node.place.run("ip", "-j", "link", "show", "type", "veth");
  assert.deepEqual(JSON.parse(ends), []);
});

test(`${cycles} cycles of ADD and DEL: descriptors, interfaces, memory and files stay`, async () => {
  const pod = node.sandbox("cycle");
  const cycle = async () => {
    await node.must("ADD", pod, { networks: ["blue", "dual"] });
    await node.must("DEL", pod);
  };
  // So many until V8 has compiled what a daemon uses: its memory grows meanwhile.
  for (let turn = 0; turn < 500; turn += 1) await cycle();
  const before = look();
  const first = nextInterface();
  for (let turn = 0; turn < cycles; turn += 1) await cycle();
  await sleep(300);
  const now = look();
  const numbers = nextInterface() - first;
  assert.deepEqual({ ...now, memory: 0 }, { ...before, memory: 0 });
  assert.ok(now.memory < before.memory + 32 * mebibyte, `${before.memory} to ${now.memory}`);
  // There are 2^31 of them, and none is given out twice until all were.
  assert.ok(numbers <= cycles * 4, `${numbers} interface numbers`);
  reportFigures({
    "cycles of ADD and DEL max": cycles,
    "interface numbers taken by a cycle max": Math.round((numbers / cycles) * 10) / 10,
    "memory gained in the cycles, MiB max": Math.max(
      0,
      Math.round((now.memory - before.memory) / mebibyte),
    ),
  });
});

/** The number that the kernel would give the node's next interface. */
function nextInterface(): number {
  node.place.run("ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1");
  const [{ ifindex }] = JSON.parse(node.place.run("ip", "-j", "link", "show", "probe0"));
  node.place.run("ip", "link", "del", "probe0");
  return Number(ifindex);
}

function look() {
  const { pid, stateDir } = node.daemon;
  return {
    interfaces: JSON.parse(node.place.run("ip", "-j", "link")).length,
    descriptors: openFiles(pid),
    files:
      readdirSync(stateDir, { recursive: true }).length +
      readdirSync(node.addresses, { recursive: true }).length,
    memory: memory(pid).now,
  };
}
