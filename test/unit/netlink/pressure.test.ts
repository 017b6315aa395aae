import assert from "node:assert/strict";
import { test } from "node:test";
import { RtnlPressure } from "../../../lib/netlink/pressure.ts";

test("RtnlPressure, slow and quick calls, is contended for two seconds after the latest slow one", () => {
  let now = 1000;
  const pressure = new RtnlPressure(() => now);
  const call = (ms: number) => {
    const measured = pressure.measure();
    now += ms;
    measured();
  };
  call(3);
  assert.equal(pressure.contended, false);
  call(4);
  assert.equal(pressure.contended, true);
  now += 1999;
  assert.equal(pressure.contended, true);
  call(50);
  now += 1999;
  assert.equal(pressure.contended, true);
  now += 1;
  assert.equal(pressure.contended, false);
});
