import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { tryLock } from "../../lib/base/libc.ts";

/** Milliseconds between two attempts. */
const pause = 20;

/**
 * Makes this process the only one that uses a state directory, until it ends or disposes of the answer: the kernel frees
 * the lock with the process, however it ends. Throws when another process has it.
 */
export function ownDirectory(dir: string): Disposable {
  const owned = tryOwn(dir);
  if (owned === undefined) {
    const todo = "stop that one, or give this one a state directory of its own";
    throw new Error(`own state directory "${dir}": another podnetd uses it: ${todo}`);
  }
  return owned;
}

function tryOwn(dir: string): Disposable | undefined {
  // To be read only: a file that is open to be written keeps a file system from being made read-only, and can't be opened on one that is.
  const fd = openSync(join(dir, "owner"), constants.O_RDONLY | constants.O_CREAT, 0o600);
  if (tryLock(fd)) return { [Symbol.dispose]: () => closeSync(fd) };
  closeSync(fd);
  return undefined;
}

/** As `ownDirectory`, after waiting up to `patience` milliseconds for the process that has it: the daemon before this one. */
export async function takeOver(dir: string, patience: number): Promise<Disposable> {
  for (const until = performance.now() + patience; performance.now() < until; await sleep(pause)) {
    const owned = tryOwn(dir);
    if (owned !== undefined) return owned;
  }
  return ownDirectory(dir);
}
