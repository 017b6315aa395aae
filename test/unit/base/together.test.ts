import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { together } from "../../../lib/base/together.ts";

test("together, all succeed, gives the values in the order of the list", async () => {
  const values = await together([setTimeout(5, "slow"), Promise.resolve(2)]);
  assert.deepEqual(values, ["slow", 2]);
});

test("together, two fail, waits for the rest and rejects with the first of the list", async () => {
  let ended = false;
  const late = setTimeout(10).then(() => {
    ended = true;
  });
  const slow = setTimeout(5).then(() => Promise.reject(new Error("first in the list")));
  const work = together([slow, Promise.reject(new Error("first in time")), late]);
  await assert.rejects(work, /first in the list/);
  assert.equal(ended, true);
});
