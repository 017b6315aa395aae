import assert from "node:assert/strict";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { reportFigures } from "../helpers/faults-report.ts";
import { podnetctl } from "../helpers/podnetctl.ts";
import { Random } from "../helpers/random.ts";
import { expect, rehearse } from "../helpers/scenario.ts";
import type { Expected } from "../helpers/scenario-fault.ts";
import { kindNetworks, prepareNode } from "../helpers/scenario-kinds.ts";
import { ScenarioNode, type ScenarioPod } from "../helpers/scenario-node.ts";
import { hasLoopDevices, SmallDisk } from "../helpers/small-disk.ts";

// State and addresses on a disk that is really full, or becomes read-only in the middle of a write: no crash, DEL succeeds or says what it
// could not free, and once the disk is well again nothing is left.

const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const isFull = process.env["FAULTS"] === "all";
const random = new Random(seed);
const networks = ["bridge", "pair", "masked"];

interface Setup extends AsyncDisposable {
  readonly node: ScenarioNode;
  readonly disk: SmallDisk;
  readonly expected: Expected;
}

async function setUp(kind: "tmpfs" | "ext4"): Promise<Setup> {
  const node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
  const disk = new SmallDisk(node.lab, kind);
  const end = async () => {
    await node.daemon.kill();
    disk[Symbol.dispose]();
    await node[Symbol.asyncDispose]();
  };
  try {
    await node.daemon.stop();
    for (const folder of [node.daemon.stateDir, node.addresses]) disk.hold(folder);
    await node.recover();
    return { node, disk, expected: await rehearse(node, networks), [Symbol.asyncDispose]: end };
  } catch (error) {
    await end();
    throw error;
  }
}

async function attached(node: ScenarioNode): Promise<ScenarioPod> {
  const pod = node.pod();
  await node.must("ADD", pod, { networks });
  return pod;
}

const ctl = (node: ScenarioNode, ...args: string[]) =>
  podnetctl(node.place, ["--socket", node.daemon.socket, ...args]);

/** The daemon is the process that it was: it answers, and nothing of its own went wrong. */
async function lives(node: ScenarioNode, pid: number): Promise<void> {
  assert.equal(node.daemon.pid, pid);
  process.kill(pid, 0);
  assert.doesNotMatch(node.daemon.log, /"msg":"(uncaught|unhandled)"/);
  const { status, stdout, stderr } = await ctl(node, "ls", "-o", "json");
  assert.equal(status, 0, `${stdout}${stderr}`);
}

for (const kind of hasLoopDevices ? (["tmpfs", "ext4"] as const) : (["tmpfs"] as const)) {
  test(`${kind} with any number of free blocks: ADD attaches all or leaves nothing, DEL always succeeds`, async () => {
    await using setup = await setUp(kind);
    const { node, disk, expected } = setup;
    const { pid } = node.daemon;
    let refused = 0;
    for (let free = 0; free <= (kind === "tmpfs" ? 10 : 6); free += 1) {
      disk.fill(free * 4096);
      const pod = node.pod();
      const { status, json, stdout } = await node.call("ADD", pod, { networks });
      const when = `${free} blocks free: ${stdout.slice(0, 300)}`;
      if (status === 0) await expect(node, expected.attached, { pods: [pod], when });
      else {
        refused += 1;
        assert.equal(json.code, 11, when);
        assert.match(json.msg, /ENOSPC|no space/i, when);
        await expect(node, expected.clean, { pods: [pod], when });
      }
      await node.must("DEL", pod);
      await expect(node, expected.clean, { pods: [pod], when: `after DEL, ${when}` });
      disk.empty();
      node.lab.remove(pod.place);
    }
    assert.ok(refused > 0, "the disk was never full");
    await lives(node, pid);
    reportFigures({ "ADDs on a full disk": refused });
  });

  test(`${kind} that is full: pods are checked, kept by GC and deleted, over a restart and a kill too`, async () => {
    await using setup = await setUp(kind);
    const { node, disk, expected } = setup;
    const pods: ScenarioPod[] = [];
    for (let number = 0; number < 4; number += 1) pods.push(await attached(node));
    const [first, second, third, fourth] = pods as [
      ScenarioPod,
      ScenarioPod,
      ScenarioPod,
      ScenarioPod,
    ];
    disk.fill();
    await node.must("CHECK", first);
    await node.collect(pods, first);
    await node.must("DEL", first);
    disk.fill();
    await node.daemon.stop();
    await node.recover();
    await node.must("CHECK", second);
    await node.must("DEL", second);
    disk.fill();
    node.arm(node.passed + 1 + random.below(expected.points.DEL));
    const gone = new AbortController();
    const call = node.call("DEL", third, { signal: gone.signal });
    await Promise.race([node.daemon.ended(), call]);
    gone.abort();
    await call;
    await node.recover();
    disk.fill();
    await node.must("DEL", third);
    await node.must("CHECK", fourth);
    node.lab.remove(fourth.place);
    await node.collect([], first);
    disk.empty();
    await expect(node, expected.clean, { pods: [first], when: `at the end (FAULTS_SEED=${seed})` });
  });
}

test("a disk that is read-only for a while: DEL says what it could not free, and the daemon frees it as soon as it can", async () => {
  await using setup = await setUp("tmpfs");
  const { node, disk, expected } = setup;
  const { pid } = node.daemon;
  const [pod, other] = [await attached(node), await attached(node)];
  disk.makeReadOnly();
  await node.must("CHECK", pod);
  const refused = await node.call("ADD", node.pod(), { networks });
  assert.equal(refused.json.code, 11);
  assert.match(refused.json.msg, /read-only/i);
  const { status, json, stdout } = await node.call("DEL", pod);
  assert.equal(status, 1);
  assert.equal(json.code, 11, stdout);
  for (const network of networks)
    assert.match(json.msg, new RegExp(`"?${network}"?.*read-only`, "i"));
  assert.match((await ctl(node, "ls", "--pending")).stdout, new RegExp(pod.id));
  assert.match((await ctl(node, "doctor")).stdout, new RegExp(`${pod.id}.*read-only`, "is"));
  await lives(node, pid);
  // A daemon that starts now serves what it has.
  await node.daemon.stop();
  await node.recover();
  await node.must("CHECK", other);
  assert.equal((await node.call("DEL", other)).json.code, 11);
  disk.repair();
  await node.must("DEL", pod);
  await expect(node, expected.clean, { pods: [pod], when: "writable again", seconds: 15 });
});

const skip = hasLoopDevices ? false : "this machine has no loop devices";
test(`a disk that breaks in the middle of ADD or DEL (FAULTS_SEED=${seed})`, { skip }, async () => {
  await using setup = await setUp("ext4");
  const { node, disk, expected } = setup;
  let broken = 0;
  for (let turn = 0; turn < (isFull ? 40 : 8); turn += 1) {
    const verb = turn % 2 === 0 ? "ADD" : "DEL";
    const pod = verb === "ADD" ? node.pod() : await attached(node);
    const { pid } = node.daemon;
    const point = 1 + random.below(expected.points[verb] - 1);
    node.arm(node.passed + point, "stop");
    const call = node.call(verb, pod, verb === "ADD" ? { networks } : {});
    const isBroken = await Promise.race([stopped(pid), call.then(() => false)]);
    disk.makeReadOnly();
    node.disarm();
    process.kill(pid, "SIGCONT");
    const { status, json } = await call;
    const when = `${verb}, broken at its point ${point}: ${JSON.stringify(json)?.slice(0, 300)}`;
    if (status !== 0) assert.ok(json.code > 0 && json.msg.length > 0, when);
    await lives(node, pid);
    const { status: found } = await ctl(node, "doctor");
    assert.ok(found !== null, when);
    await node.daemon.stop();
    disk.repair();
    await node.recover();
    await node.must("DEL", pod);
    // The record may never have reached the disk: then only gc knows that nobody has the addresses.
    node.lab.remove(pod.place);
    assert.equal((await ctl(node, "gc")).status, 0, when);
    await expect(node, expected.clean, { pods: [node.pod()], when });
    broken += Number(isBroken);
    reportFigures({ "disks that broke in the middle of a call": Number(isBroken) });
  }
  assert.ok(broken > 0, "no call was cut off");
});

/** True as soon as the process stands at its point; false when it never does: one call has a few effects less than another. */
async function stopped(pid: number): Promise<boolean> {
  for (let turn = 0; turn < 500; turn += 1) {
    if (/^State:\s+[Tt]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))) return true;
    await sleep(20);
  }
  return false;
}

test("records that are lost with their disk: doctor reports what is left of their pods, and gc frees it", async () => {
  await using setup = await setUp("tmpfs");
  const { node, expected } = setup;
  const pod = await attached(node);
  await node.daemon.stop();
  rmSync(join(node.daemon.stateDir, "records"), { recursive: true });
  await node.recover();
  node.lab.remove(pod.place);
  const told = (await ctl(node, "doctor")).stdout;
  for (const network of networks)
    assert.match(told, new RegExp(`leak.*${network}|${network}.*leak`, "i"), told);
  const { status, stdout, stderr } = await ctl(node, "gc");
  assert.equal(status, 0, `${stdout}${stderr}`);
  await expect(node, expected.clean, { pods: [node.pod()], when: `after gc: ${stdout}` });
  assert.match((await ctl(node, "doctor")).stdout, /ok +leaks/);
});
