import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate, gateSizes } from "../../../daemon/node/gate.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const forever = new AbortController().signal;

test("as many run as the gate lets, the rest in the order of coming", async () => {
  const gate = new Gate({ running: 2, waiting: 10 });
  const leaves = [await gate.enter(forever), await gate.enter(forever)];
  const order: number[] = [];
  const rest = [1, 2, 3].map(async (number) => {
    const leave = await gate.enter(forever);
    order.push(number);
    leave();
  });
  assert.equal(gate.running, 2);
  assert.equal(gate.waiting, 3);
  for (const leave of leaves) leave();
  await Promise.all(rest);
  assert.deepEqual(order, [1, 2, 3]);
  assert.equal(gate.running, 0);
});

test("one more than may wait is told to come again with code 11", async () => {
  const gate = new Gate({ running: 1, waiting: 1 });
  await gate.enter(forever);
  void gate.enter(forever);
  await assert.rejects(
    gate.enter(forever),
    (error) => error instanceof CniError && error.code === 11,
  );
});

test("a caller that gives up while waiting leaves its place to others", async () => {
  const gate = new Gate({ running: 1, waiting: 1 });
  const leave = await gate.enter(forever);
  const impatient = new AbortController();
  const given = gate.enter(impatient.signal);
  impatient.abort(new Error("gone"));
  await assert.rejects(given, /gone/);
  const next = gate.enter(forever);
  leave();
  (await next)();
  assert.equal(gate.running, 0);
});

test("leaving twice counts once", async () => {
  const gate = new Gate({ running: 1, waiting: 5 });
  const leave = await gate.enter(forever);
  leave();
  leave();
  assert.equal(gate.running, 0);
});

test("sizes follow the memory limit and stay within bounds", () => {
  assert.deepEqual(gateSizes(192 * 2 ** 20), { running: 32, waiting: 1536 });
  assert.deepEqual(gateSizes(2 ** 20), { running: 4, waiting: 256 });
  assert.deepEqual(gateSizes(0), { running: 32, waiting: 4096 });
  assert.deepEqual(gateSizes(2 ** 63), { running: 32, waiting: 4096 });
});
