import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { fuzz } from "../helpers/fuzz.ts";
import { type Attempt, attempts } from "./plugin-configs.ts";
import { PluginWorld } from "./plugin-world.ts";

/** Fewer attempts say nothing about how many attach. */
const fewest = 40;

const needs =
  process.getuid?.() === 0 && spawnSync("unshare", ["-n", "true"]).status === 0
    ? undefined
    : "needs root, allowed to make namespaces";

let world: PluginWorld | undefined;
/** The time may be up in the middle of an attempt, which has to end before anything else. */
let last: Promise<void> = Promise.resolve();

/** An attempt that failed leaves things behind, which the next, made to find a simpler one that fails, must not be blamed for. */
async function attempt(one: Attempt): Promise<void> {
  assert.ok(world);
  if (world.failed) {
    const { tried } = world;
    await world[Symbol.asyncDispose]();
    world = await PluginWorld.start(tried);
  }
  last = world.attempt(one);
  await last;
}

function counts({ tried }: PluginWorld): { attached: number; all: number; text: string } {
  const entries = [...tried].toSorted(([one], [other]) => one.localeCompare(other));
  const attached = entries.reduce((sum, [, count]) => sum + count.attached, 0);
  const all = entries.reduce((sum, [, count]) => sum + count.attached + count.refused, 0);
  const types = entries.map(([type, count]) => {
    return `${type} ${count.attached}/${count.attached + count.refused}`;
  });
  return { attached, all, text: `attached ${attached} of ${all}: ${types.join(", ")}` };
}

if (needs === undefined) {
  before(async () => {
    world = await PluginWorld.start();
  });
  after(async () => {
    await world?.[Symbol.asyncDispose]();
  });
  fuzz(
    "a plugin configuration gives an error or a working attachment, and nothing is left",
    fc.asyncProperty(attempts, attempt),
  );
  test("fuzz: at least half of the plugin configurations attach, and `ip` finds nothing left", async (context) => {
    assert.ok(world);
    await last;
    const missing = Math.max(0, fewest - counts(world).all);
    const seed = Number(process.env["FUZZ_SEED"] ?? Date.now() % 1_000_000_007);
    for (const one of missing === 0
      ? []
      : fc.sample(attempts, { numRuns: missing, seed: seed + 1 }))
      await attempt(one);
    const { attached, all, text } = counts(world);
    context.diagnostic(text);
    assert.ok(attached * 2 >= all, text);
    world.assertNothingLeft();
  });
} else {
  test("fuzz: plugin configurations", { skip: needs }, () => undefined);
}
