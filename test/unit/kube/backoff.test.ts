import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff } from "../../../lib/kube/backoff.ts";
import { splitLines } from "../../../lib/kube/lines.ts";

test("pauses double up to half a minute, between half and all of it, and start anew", () => {
  const most = new Backoff(() => 1);
  const least = new Backoff(() => 0);
  const pauses = (backoff: Backoff) => Array.from({ length: 8 }, () => backoff.next());
  assert.deepEqual(pauses(most), [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  assert.deepEqual(pauses(least), [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
  most.reset();
  assert.equal(most.next(), 500);
  assert.equal(most.next(7_000), 7_000);
});

test("lines are put together from any pieces; one that is cut off is left out", async () => {
  const text = Buffer.from('{"a":"ä"}\n\r\n{"b":1}\r\n{"cut');
  for (let size = 1; size <= text.length; size++) {
    const pieces = (async function* () {
      for (let at = 0; at < text.length; at += size) yield text.subarray(at, at + size);
    })();
    const lines: string[] = [];
    for await (const one of splitLines(pieces)) lines.push(one);
    assert.deepEqual(lines, ['{"a":"ä"}', '{"b":1}']);
  }
});
