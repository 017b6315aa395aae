import fs from "node:fs";
import fsPromises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";

/** How often each function of node:fs and node:fs/promises was called while `work` ran, by this process. */
export async function countFsCalls(work: () => Promise<void>): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  const undo = [watch(fs, "", counts), watch(fsPromises, "promises.", counts)];
  syncBuiltinESMExports();
  try {
    await work();
  } finally {
    for (const restore of undo) restore();
    syncBuiltinESMExports();
  }
  return Object.fromEntries(Object.entries(counts).toSorted());
}

function watch(module: object, prefix: string, counts: Record<string, number>): () => void {
  const originals = Object.entries(module).filter(
    (entry): entry is [string, (...args: unknown[]) => unknown] =>
      // Names with a capital are classes.
      typeof entry[1] === "function" && /^[a-z]/.test(entry[0]),
  );
  for (const [name, original] of originals) {
    Reflect.set(module, name, (...args: unknown[]) => {
      counts[prefix + name] = (counts[prefix + name] ?? 0) + 1;
      return original(...args);
    });
  }
  return () => {
    for (const [name, original] of originals) Reflect.set(module, name, original);
  };
}
