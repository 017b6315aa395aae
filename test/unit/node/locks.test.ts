import assert from "node:assert/strict";
import { test } from "node:test";
import { KeyedLocks } from "../../../daemon/node/locks.ts";

const forever = new AbortController().signal;

/** Lets everything that can go on go on. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
}

test("a held name makes the next caller wait until it is released", async () => {
  const locks = new KeyedLocks();
  const release = await locks.acquire(["a"], forever);
  let entered = false;
  const second = locks.acquire(["a"], forever).then((free) => {
    entered = true;
    free();
  });
  await settle();
  assert.equal(entered, false);
  release();
  await second;
  assert.equal(entered, true);
  assert.equal(locks.isBusy("a"), false);
});

test("other names do not wait", async () => {
  const locks = new KeyedLocks();
  await locks.acquire(["a"], forever);
  (await locks.acquire(["b", "c"], forever))();
});

test("callers of several names are served in order, and none is overtaken on a name it waits for", async () => {
  const locks = new KeyedLocks();
  const order: string[] = [];
  const first = await locks.acquire(["a"], forever);
  const both = locks.acquire(["a", "b"], forever).then((free) => {
    order.push("both");
    free();
  });
  const late = locks.acquire(["b"], forever).then((free) => {
    order.push("late");
    free();
  });
  await settle();
  assert.deepEqual(order, []);
  first();
  await Promise.all([both, late]);
  assert.deepEqual(order, ["both", "late"]);
});

test("a caller that gives up holds nothing and lets those behind it go on", async () => {
  const locks = new KeyedLocks();
  const release = await locks.acquire(["a"], forever);
  const impatient = new AbortController();
  const given = locks.acquire(["a", "b"], impatient.signal);
  const behind = locks.acquire(["b"], forever);
  impatient.abort(new Error("gone"));
  await assert.rejects(given, /gone/);
  (await behind)();
  release();
  assert.equal(locks.isBusy("a"), false);
  assert.equal(locks.isBusy("b"), false);
});

test("releasing twice frees nothing of the next holder", async () => {
  const locks = new KeyedLocks();
  const release = await locks.acquire(["a"], forever);
  release();
  await locks.acquire(["a"], forever);
  release();
  assert.equal(locks.isBusy("a"), true);
});
