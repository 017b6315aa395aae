import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CountPauses,
  isCountOnly,
  readyEvent,
} from "../../../daemon/controller/condition-writes.ts";
import { type Condition, mergeConditions } from "../../../daemon/controller/conditions.ts";
import type { JsonObject } from "../../../lib/base/json.ts";

const ready: Condition = { type: "Ready", status: "True", reason: "Ready", message: "fine" };
const used: Condition = { type: "InUse", status: "True", reason: "InUse", message: "2 pods" };
const at = { generation: 3, now: "2026-01-02T00:00:00Z" };
const written = (condition: Condition, since = "2026-01-01T00:00:00Z", generation = 3) => ({
  ...condition,
  observedGeneration: generation,
  lastTransitionTime: since,
});

test("conditions that are as they should be are not written", () => {
  const present = [written(ready), written(used)];
  assert.equal(mergeConditions({ present, wanted: [ready, used], ...at }), undefined);
});

test("a message changes in its place and keeps the time of the transition; a status gets a new time", () => {
  const foreign = { type: "acme.io/Wired", status: "True", odd: { key: 1 } };
  const present: JsonObject[] = [foreign, written(ready)];
  const message = mergeConditions({ present, wanted: [{ ...ready, message: "new" }], ...at });
  assert.deepEqual(message, [foreign, written({ ...ready, message: "new" })]);
  assert.equal(message?.[0], foreign);
  const off: Condition = { ...ready, status: "False", reason: "Deleting" };
  assert.deepEqual(mergeConditions({ present, wanted: [off], ...at }), [
    foreign,
    written(off, at.now),
  ]);
});

test("a new generation is observed", () => {
  const present = [written(ready, "2026-01-01T00:00:00Z", 2)];
  assert.deepEqual(mergeConditions({ present, wanted: [ready], ...at }), [written(ready)]);
});

test("a full list keeps everybody's conditions and takes in what matters most", () => {
  const foreign = (length: number) =>
    Array.from({ length }, (_, index) => ({ type: `acme.io/C${index}`, status: "True" }));
  const room = mergeConditions({ present: foreign(7), wanted: [ready, used], ...at });
  assert.deepEqual(room?.map(({ type }) => type).slice(7), ["Ready"]);
  assert.equal(mergeConditions({ present: foreign(8), wanted: [ready, used], ...at }), undefined);
});

test("only another count of users is worth no haste", () => {
  const present = [written(ready), written(used)];
  assert.equal(isCountOnly(present, [ready, { ...used, message: "3 pods" }]), true);
  assert.equal(isCountOnly(present, [{ ...ready, message: "x" }, used]), false);
  assert.equal(isCountOnly(present, [ready, { ...used, status: "False", reason: "x" }]), false);
  assert.equal(isCountOnly([written(ready)], [ready, used]), false);
  const pauses = new CountPauses();
  assert.equal(pauses.before("u", 1_000), 0);
  assert.equal(pauses.before("u", 2_000), 4_000);
  assert.equal(pauses.before("other", 2_000), 0);
  assert.equal(pauses.before("u", 6_000), 0);
});

test("people are told of a change of readiness once, as a warning where nobody meant it", () => {
  assert.equal(readyEvent(ready, ready), undefined);
  assert.equal(readyEvent(undefined, ready)?.type, "Normal");
  const wrong: Condition = { ...ready, status: "False", reason: "ParamsNotReady" };
  assert.equal(readyEvent(ready, wrong)?.type, "Warning");
  assert.equal(readyEvent(ready, { ...wrong, reason: "Deleting" })?.type, "Normal");
});
