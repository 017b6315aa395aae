import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { reportFigures } from "../../helpers/faults-report.ts";
import { type PublishedPod, PublishNode } from "../../helpers/publish-node.ts";
import { Random } from "../../helpers/random.ts";
import { straced } from "../../helpers/scenario-strace.ts";
import { uncovered } from "../../helpers/scenario-trace.ts";

// kill -9 around everything that podnetd writes to a cluster: the claim on a fixed address, a pod's status, events. Whatever follows, a
// pod's status is that of its newest sandbox, never of another pod with its name, and what is written is not written again. Events may
// be lost with the daemon that had them to write; there are never more of them than ADDs. FAULTS=all plays everything.

const all = process.env["FAULTS"] === "all";
const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const random = new Random(seed);
const few = 8;

const aftermaths = ["same ids", "new sandbox", "pod replaced", "API away"] as const;

/** Killed before a point of ADD or of what follows its answer, or once the server has done a write of which the daemon has not heard. */
type Moment = { readonly point: number } | { readonly write: number };

interface PublishFault {
  readonly moment: Moment;
  readonly aftermath: (typeof aftermaths)[number];
  /** The point of the next life at which it is killed again. */
  readonly again?: number;
}

let node: PublishNode;
before(async () => {
  node = await PublishNode.start();
});
after(async () => {
  await node?.[Symbol.asyncDispose]();
});
afterEach(() => node.clear());

test("every write to the API server lies between two fault points", async () => {
  const trace = join(node.cluster.lab.folder(), "trace");
  await node.startDaemon(straced(trace));
  const pod = await node.pod();
  await node.must("ADD", pod);
  await node.published(pod);
  await eventually(async () => (await node.told(pod)) === 1, "an event");
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
  const threads = readdirSync(`/proc/${node.daemon.pid}/task`);
  await node.daemon.stop();
  const text = readFileSync(trace, "utf8");
  const { faults } = uncovered(text, threads);
  assert.deepEqual(faults, []);
  // The claim, the status, the event.
  assert.equal([...text.matchAll(/"(PATCH|POST) \/ap/g)].length, 3);
  await node.remove(pod);
});

test(`killed around any write to the API server, a pod's status is its newest sandbox' (FAULTS_SEED=${seed})`, async () => {
  await node.startDaemon();
  // The first time makes what stays: bridges, folders.
  await rehearsed();
  const points = await rehearsed();
  const faults = faultsOf(points);
  reportFigures({ "points at which writes to the API server begin and end": points.length });
  const failures: string[] = [];
  for (const fault of all ? faults : drawn(faults)) {
    const failure = await failureOf(fault);
    if (failure !== undefined) failures.push(failure);
    if (failures.length === 3) break;
    if (failure !== undefined) await node.clear();
    if (failure !== undefined) await node.startDaemon();
  }
  assert.deepEqual(failures, [], failures.join("\n\n"));
});

test("what is written is not written again by the next daemon", async () => {
  await node.faults.relive(node.daemon);
  const pod = await node.pod();
  await node.must("ADD", pod);
  await node.published(pod);
  const version = await node.version(pod.name);
  await node.faults.relive(node.daemon);
  await sleep(1_000);
  assert.equal(await node.version(pod.name), version);
  assert.deepEqual(node.faults.steps.filter(isRequest), []);
  await node.must("DEL", pod);
  await node.remove(pod);
});

/** Points from an ADD's begin, counted from 1, before which the node and the server are not as before the last one. */
async function rehearsed(): Promise<readonly number[]> {
  const pod = await node.pod();
  const from = node.faults.steps.length;
  await node.must("ADD", pod);
  await everything(pod);
  const steps = node.faults.steps.slice(from);
  await node.must("DEL", pod);
  await node.remove(pod);
  const found = steps.flatMap((step, at) => {
    const isNear = isRequest(step) || isRequest(steps[at - 1] ?? "") || / answer /.test(step);
    return isNear ? [at + 1] : [];
  });
  assert.ok(found.length >= 5, steps.join("\n"));
  return found;
}

function isRequest(step: string): boolean {
  return step.includes(" request ");
}

function faultsOf(points: readonly number[]): readonly PublishFault[] {
  const moments: Moment[] = [
    ...points.map((point) => ({ point })),
    ...[1, 2].map((write) => ({ write })),
  ];
  return moments.flatMap((moment) =>
    aftermaths.flatMap((aftermath) => [
      { moment, aftermath },
      { moment, aftermath, again: 1 + random.below(8) },
    ]),
  );
}

function drawn(faults: readonly PublishFault[]): readonly PublishFault[] {
  const order = faults.map((fault) => ({ fault, at: random.next() }));
  return order
    .toSorted((a, b) => a.at - b.at)
    .slice(0, few)
    .map(({ fault }) => fault);
}

async function failureOf(fault: PublishFault): Promise<string | undefined> {
  try {
    const kills = await played(fault);
    reportFigures({
      "scenarios that left something": 0,
      "scenarios with a kill": 1,
      "kills of the daemon": kills,
    });
    return undefined;
  } catch (error) {
    reportFigures({ "scenarios that left something": 1 });
    const text = error instanceof Error ? error.message : String(error);
    const steps = node.faults.steps.slice(-6).join("\n");
    return `${JSON.stringify(fault)}: ${text}\n${steps}\nits log:\n${node.daemon.log.slice(-2000)}`;
  } finally {
    await node.proxy.set({});
  }
}

async function played({ moment, aftermath, again }: PublishFault): Promise<number> {
  const pod = await node.pod();
  await killedIn(pod, moment);
  let kills = 1;
  const away = aftermath === "API away";
  const newer = aftermath === "pod replaced" ? await node.pod(pod.name) : undefined;
  if (away) await node.proxy.set({ down: true });
  if (again !== undefined) kills += await livedUntil(again);
  await node.faults.relive(node.daemon);
  if (away) {
    await sleep(500);
    await node.proxy.set({});
  }
  const last = newer ?? (aftermath === "new sandbox" ? node.sandbox(pod) : pod);
  if (last === pod) await node.must("ADD", pod);
  else await replaced(pod, last);
  await node.published(last);
  assert.equal(await node.holder(), last.uid, "who has the fixed address");
  const told = await node.told(last);
  assert.ok(told <= 2, `${told} events`);
  await node.must("CHECK", last);
  await node.must("DEL", last);
  assert.deepEqual(node.left(), []);
  await node.remove(last);
  return kills;
}

/** The old sandbox is still there when the daemon is back; then it goes, and the new one comes. */
async function replaced(old: PublishedPod, last: PublishedPod): Promise<void> {
  if (last.uid !== old.uid) {
    await sleep(500);
    assert.equal(await node.status(last.name), undefined, "the status of another pod");
  }
  await node.must("DEL", old);
  await node.must("ADD", last);
  node.cluster.lab.remove(old.place);
}

/** Ends the daemon at that moment of an ADD and of what it causes. What calls ends with it. */
async function killedIn(pod: PublishedPod, moment: Moment): Promise<void> {
  const { daemon } = node;
  const runtime = new AbortController();
  if ("point" in moment) node.faults.arm(node.faults.steps.length + moment.point);
  else await node.proxy.set({ cutAfter: moment.write, stay: true });
  const call = node.call("ADD", pod, runtime.signal);
  if ("write" in moment) {
    const heard = new AbortController();
    const late = sleep(20_000).then(() => assert.fail("the moment never came"));
    await Promise.race([node.proxy.wasCut(once(heard.signal)), late]);
    heard.abort();
    await daemon.kill();
  } else {
    // On a busy machine messages to the kernel go together, so there may be fewer points than in the rehearsal: then it is killed after the last.
    const over = everything(pod).catch(() => undefined);
    if ((await Promise.race([daemon.ended().then(() => "ended"), over])) !== "ended")
      await daemon.kill();
  }
  runtime.abort();
  await call;
}

/** An ADD's status and event are written. */
async function everything(pod: PublishedPod): Promise<void> {
  await node.published(pod);
  await eventually(async () => (await node.told(pod)) >= 1, "an event");
}

function once(signal: AbortSignal): Promise<unknown> {
  return new Promise((done) => signal.addEventListener("abort", done, { once: true }));
}

/** A life that ends at a point of its start or of what it then writes by itself; 0: it has none such. */
async function livedUntil(point: number): Promise<number> {
  if (!(await node.faults.relive(node.daemon, point))) return 1;
  const over = new AbortController();
  const died = await Promise.race([
    node.daemon.ended().then(() => 1),
    sleep(700, 0, { signal: over.signal }),
  ]);
  over.abort();
  return died;
}

async function eventually(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (const until = Date.now() + 20_000; !(await holds()); await sleep(50))
    if (Date.now() > until)
      assert.fail(`not within 20 s: ${what}\n${node.daemon.log.slice(-2000)}`);
}
