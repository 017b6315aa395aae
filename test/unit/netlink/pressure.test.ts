import assert from "node:assert/strict";
import { test } from "node:test";
import { timesAsleep } from "../../../lib/base/libc.ts";
import { RtnlPressure } from "../../../lib/netlink/pressure.ts";

function fake() {
  let now = 1000;
  let asleep = 0;
  const pressure = new RtnlPressure(
    () => now,
    () => asleep,
  );
  const pass = (ms: number) => {
    now += ms;
  };
  const call = (ms: number, how: { slept: boolean; inPool?: boolean }) => {
    const measured = how.inPool === true ? pressure.measureInPool() : pressure.measure();
    pass(ms);
    if (how.slept) asleep += 1;
    measured();
  };
  return { pressure, pass, call };
}

test("RtnlPressure, slow and quick calls, is contended for half a second after the latest slow one", () => {
  const { pressure, pass, call } = fake();
  call(14, { slept: true });
  assert.equal(pressure.contended, false);
  call(15, { slept: true });
  assert.equal(pressure.contended, true);
  pass(499);
  assert.equal(pressure.contended, true);
  call(50, { slept: false, inPool: true });
  pass(499);
  assert.equal(pressure.contended, true);
  pass(1);
  assert.equal(pressure.contended, false);
});

test("RtnlPressure, a call that was slow without having slept, had no processor and says nothing of RTNL", () => {
  const { pressure, call } = fake();
  call(40, { slept: false });
  assert.equal(pressure.contended, false);
});

test("RtnlPressure, calls through the pool that a busy machine slows down, lets the contention end", () => {
  const { pressure, pass, call } = fake();
  call(15, { slept: true });
  for (let passed = 0; passed < 2000; passed += 20) call(20, { slept: true, inPool: true });
  pass(0);
  assert.equal(pressure.contended, false);
});

test("timesAsleep, a thread that waits and one that computes, counts the waiting", () => {
  const wait = new Int32Array(new SharedArrayBuffer(4));
  const before = timesAsleep();
  for (let times = 0; times < 5; times += 1) Atomics.wait(wait, 0, 0, 2);
  assert.ok(timesAsleep() - before >= 5);
});
