import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { reportFigures } from "../helpers/faults-report.ts";
import { generations } from "../helpers/generations.ts";
import { type Build, previousBuild, previousCommit, thisBuild } from "../helpers/previous-build.ts";
import { Random } from "../helpers/random.ts";
import { expect, rehearse } from "../helpers/scenario.ts";
import type { Expected } from "../helpers/scenario-fault.ts";
import {
  type AttachmentKind,
  attachmentKinds,
  kindNetworks,
  prepareNode,
} from "../helpers/scenario-kinds.ts";
import { type CallOptions, ScenarioNode, type ScenarioPod } from "../helpers/scenario-node.ts";

// Upgrade and rollback with pods running, by a real build of the version before this one. Where the history does not have it, the generations of
// fixtures (generations.test.ts) are what stands for it.

const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const cuts = Number(process.env["UPGRADE_CUTS"] ?? (process.env["FAULTS"] === "all" ? 60 : 8));
const random = new Random(seed);
const previous = previousBuild();

if (previous === undefined) {
  test(`the history of this clone has no ${previousCommit}: a generation of fixtures stands for it`, () => {
    assert.ok(generations().length > 1);
  });
} else {
  upgrades(previous);
}

let node: ScenarioNode;
let clean: Expected["clean"];

function upgrades(older: Build): void {
  before(async () => {
    node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
    // What stays for good (bridges, tables) is there from now on, as either build makes it.
    for (const build of [older, thisBuild]) {
      await change(build);
      for (const { networks } of attachmentKinds) {
        const pod = node.pod();
        await node.must("ADD", pod, { networks });
        await node.must("DEL", pod);
        node.lab.remove(pod.place);
      }
    }
    clean = (await rehearse(node, ["bridge", "pair"])).clean;
  });
  after(async () => {
    await node[Symbol.asyncDispose]();
  });
  const directions = [
    { from: older, to: thisBuild },
    { from: thisBuild, to: older },
  ];
  for (const way of directions) {
    const title = `${way.from.name} to ${way.to.name}`;
    test(`${title}: pods of every kind are checked, kept by GC, adopted and deleted`, () =>
      running(way));
    test(`${title}: pods that are gone are given back by GC alone`, () => gone(way));
    test(`${title}: an ADD or DEL that was cut off is finished or undone (FAULTS_SEED=${seed})`, () =>
      cutOff(way));
    test(`${title}: a call that waits while the daemon is changed is answered by the new one`, () =>
      waiting(way));
    test(`stub of ${way.from.name} with the daemon of ${way.to.name}: every verb, and errors`, () =>
      mixed(way));
  }
}

interface Way {
  readonly from: Build;
  readonly to: Build;
}

/** Stops the daemon as an upgrade does, and starts the other build's on the same folders. */
async function change(build: Build): Promise<void> {
  if (node.daemon.program === build.daemon) return;
  await node.daemon.stop();
  await begin(build);
}

async function begin(build: Build): Promise<void> {
  node.daemon.program = build.daemon;
  await node.recover();
  const command = readFileSync(`/proc/${node.daemon.pid}/cmdline`, "utf8");
  assert.ok(command.includes(build.daemon.replace(/bin\/podnetd$/, "")), command);
}

interface Attached {
  readonly pod: ScenarioPod;
  readonly kind: string;
  readonly networks: readonly unknown[];
  readonly answer: unknown;
}

async function attachAll(
  build: Build,
  kinds: readonly AttachmentKind[] = attachmentKinds,
): Promise<Attached[]> {
  await change(build);
  const attached: Attached[] = [];
  for (const { name, networks } of kinds) {
    const pod = node.pod();
    const answer = await node.must("ADD", pod, { networks, program: build.stub });
    attached.push({ pod, kind: name, networks, answer });
  }
  return attached;
}

/** All of them, although one fails: with an upgrade it is the list that counts. */
async function forEach(pods: readonly Attached[], work: (one: Attached) => Promise<unknown>) {
  const faults: string[] = [];
  for (const one of pods) {
    await work(one).catch((error: unknown) => faults.push(`${one.kind}: ${String(error)}`));
  }
  assert.deepEqual(faults, []);
}

async function running({ from, to }: Way): Promise<void> {
  const attached = await attachAll(from);
  await change(to);
  const program = to.stub;
  const check = () => forEach(attached, ({ pod }) => node.must("CHECK", pod, { program }));
  await check();
  await node.collect(podsOf(attached), podsOf(attached)[0] ?? node.pod());
  await check();
  await forEach(attached, async ({ pod, networks, answer }) => {
    assert.deepEqual(await node.must("ADD", pod, { networks, program }), answer, "the same answer");
  });
  await forEach(attached, ({ pod }) => node.must("DEL", pod, { program }));
  for (const pod of podsOf(attached)) node.lab.remove(pod.place);
  await expect(node, clean, { pods: [node.pod()], when: "after all DELs" });
  reportFigures({ "pods kept over an upgrade or rollback": attached.length });
}

function podsOf(attached: readonly Attached[]): ScenarioPod[] {
  return attached.map(({ pod }) => pod);
}

async function gone({ from, to }: Way): Promise<void> {
  const kinds = attachmentKinds.filter(({ endsWithNamespace }) => endsWithNamespace !== true);
  const attached = await attachAll(from, kinds);
  await change(to);
  for (const pod of podsOf(attached)) node.lab.remove(pod.place);
  await node.collect([], node.pod());
  await expect(node, clean, { pods: [node.pod()], when: "after GC" });
}

/** Killed at a drawn point by one build's hand; the other one finds what there is. */
async function cutOff({ from, to }: Way): Promise<void> {
  for (let turn = 0; turn < cuts; turn += 1) {
    const { name, networks } = random.pick(attachmentKinds);
    const verb = random.pick(["ADD", "DEL"]);
    await change(from);
    const pod = node.pod();
    if (verb === "DEL") await node.must("ADD", pod, { networks });
    const dying = new AbortController();
    const point = 1 + random.below(30);
    node.arm(node.passed + point);
    const options = verb === "ADD" ? { networks } : {};
    const call = node.call(verb, pod, { ...options, signal: dying.signal, program: from.stub });
    await Promise.race([node.daemon.ended(), call]);
    node.disarm();
    dying.abort();
    await call;
    await node.daemon.kill();
    await begin(to);
    await node.must("DEL", pod, { program: to.stub });
    const when = `${verb} of ${name}, cut off at ${point}`;
    await expect(node, clean, { pods: [pod], when });
    node.lab.remove(pod.place);
    reportFigures({ "calls cut off in one version and settled by the other": 1 });
  }
}

async function waiting({ from, to }: Way): Promise<void> {
  await change(from);
  const [early, late] = [node.pod(), node.pod()];
  await node.must("ADD", early, { networks: ["bridge"] });
  await node.daemon.stop();
  const options = { config: { daemonWait: 60 }, program: from.stub };
  const calls = [
    node.must("CHECK", early, options),
    node.must("ADD", late, { networks: ["bridge", "masked"], ...options }),
  ];
  await begin(to);
  await Promise.all(calls);
  for (const pod of [early, late]) await node.must("DEL", pod);
  await expect(node, clean, { pods: [late], when: "after both DELs" });
}

/** The stub stays what it was until it is replaced: a daemon answers it in its own words. */
async function mixed({ from, to }: Way): Promise<void> {
  await change(to);
  const program = from.stub;
  const pod = node.pod();
  const call = (verb: string, options: CallOptions = {}) =>
    node.call(verb, pod, { ...options, program });
  const good = async (verb: string, options: CallOptions = {}) => {
    const { status, json, stdout } = await call(verb, options);
    assert.equal(status, 0, `${verb}: ${stdout}`);
    return json;
  };
  assert.ok((await good("VERSION")).supportedVersions.includes("1.1.0"));
  await good("STATUS");
  const { interfaces } = await good("ADD", { networks: ["bridge", "upper"] });
  assert.ok(interfaces.some(({ podNetwork }: { podNetwork?: string }) => podNetwork === "upper"));
  await good("CHECK");
  await good("GC", {
    config: { "cni.dev/valid-attachments": [{ containerID: pod.id, ifname: "eth0" }] },
  });
  await good("CHECK");
  listed(from, pod);
  await good("DEL");
  await good("DEL");
  const { status, json } = await call("ADD", { networks: ["nowhere"] });
  assert.equal(status, 1);
  assert.equal(json.code, 100);
  const wrong = await call("CHECK", {});
  assert.equal(wrong.status, 1);
  assert.ok(wrong.json.code > 0);
  await expect(node, clean, { pods: [pod], when: "after all verbs" });
}

/** podnetctl of one build asks the daemon of the other. */
function listed({ ctl }: Build, pod: ScenarioPod): void {
  assert.ok(existsSync(ctl));
  const [program = "", ...args] = [ctl, "--socket", node.daemon.socket, "ls", "-o", "json"];
  const done = spawnSync(program, args, { encoding: "utf8" });
  assert.match(done.stdout, new RegExp(`"containerId": ?"${pod.id}"`), done.stderr);
}
