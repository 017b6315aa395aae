import { test } from "node:test";
import fc from "fast-check";

/** The time that all properties of this file share; test/run.ts and .ci/run set it. */
const budgetMs = Number(process.env["PODNET_FUZZ_FILE_MS"] ?? 2_000);
const seed = Number(process.env["FUZZ_SEED"] ?? Date.now() % 1_000_000_007);
let registered = 0;

/**
 * A test of a property with as many random inputs as fit into the time. The seed is in the message of a failure: the same seed
 * (FUZZ_SEED) finds it again, and what it found becomes a fixture.
 */
export function fuzz<T>(name: string, property: fc.IRawProperty<T>): void {
  registered += 1;
  test(`fuzz: ${name}`, async () => {
    await fc.assert(property as fc.IAsyncProperty<T>, {
      seed,
      numRuns: 100_000_000,
      interruptAfterTimeLimit: Math.max(100, budgetMs / registered),
      markInterruptAsFailure: false,
    });
  });
}
