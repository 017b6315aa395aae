import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";

const start = (...args: string[]) =>
  spawn(process.execPath, [resolve("cmd/podnetctl/main.ts"), ...args]);

test("podnetctl, whose output nobody reads to the end, ends with its own status and says nothing of it", async () => {
  const child = start("--help");
  child.stdout.destroy();
  const said = text(child.stderr);
  const [status] = await once(child, "exit");
  assert.deepEqual([status, await said], [0, ""]);
});

test("podnetctl, whose error output nobody reads, ends with its own status", async () => {
  const child = start("--nonsense");
  child.stderr.destroy();
  const [status] = await once(child, "exit");
  assert.equal(status, 2);
});
