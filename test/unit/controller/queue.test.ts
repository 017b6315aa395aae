import assert from "node:assert/strict";
import { test } from "node:test";
import { WorkQueue } from "../../../daemon/controller/queue.ts";
import { openLog } from "../../../lib/base/log.ts";
import { KubeError } from "../../../lib/kube/error.ts";

const log = openLog("silent");

function setUp(work: (key: string) => Promise<number | undefined>) {
  const stop = new AbortController();
  const queue = new WorkQueue({ name: "q", workers: 2, work, log }, stop.signal);
  return { queue, stop };
}

const turn = () => new Promise((done) => setImmediate(done));

async function until(what: () => boolean): Promise<void> {
  for (let i = 0; i < 400 && !what(); i++) await new Promise((done) => setTimeout(done, 5));
  assert.ok(what());
}

test("many additions are one piece of work; an addition during the work is another", async () => {
  const gate = Promise.withResolvers<void>();
  const seen: string[] = [];
  const { queue, stop } = setUp(async (key) => {
    seen.push(key);
    if (seen.length === 1) await gate.promise;
    return undefined;
  });
  for (let i = 0; i < 5; i++) queue.add("a");
  await turn();
  assert.deepEqual(seen, ["a"]);
  for (let i = 0; i < 5; i++) queue.add("a");
  await turn();
  assert.deepEqual([seen, queue.depth], [["a"], 1], "never the same key twice at once");
  gate.resolve();
  await until(() => seen.length === 2);
  stop.abort();
  await queue.ended();
});

test("no more than the workers at once, and the others have their turn", async () => {
  let running = 0;
  let most = 0;
  const seen = new Set<string>();
  const { queue, stop } = setUp(async (key) => {
    running++;
    most = Math.max(most, running);
    await turn();
    running--;
    seen.add(key);
    return undefined;
  });
  for (let i = 0; i < 20; i++) queue.add(`k${i}`);
  await until(() => seen.size === 20);
  assert.equal(most, 2);
  stop.abort();
});

test("a failure is tried again, a conflict sooner, and what asks for it later", async () => {
  const outcomes = [new KubeError("changed", { status: 409 }), new Error("bug"), undefined];
  let calls = 0;
  const { queue, stop } = setUp(async () => {
    const outcome = outcomes[calls++];
    if (outcome !== undefined) throw outcome;
    return calls < 4 ? 1 : undefined;
  });
  queue.add("a");
  await until(() => calls === 4);
  await turn();
  assert.equal(queue.depth, 0);
  stop.abort();
});

test("after the end nothing begins, and what pauses is forgotten", async () => {
  let calls = 0;
  const { queue, stop } = setUp(async () => {
    calls++;
    return undefined;
  });
  queue.add("later", 5);
  queue.add("now");
  stop.abort();
  queue.add("late");
  await new Promise((done) => setTimeout(done, 20));
  await queue.ended();
  assert.deepEqual([calls, queue.depth], [0, 0]);
});
