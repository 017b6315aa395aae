import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { tryLock } from "../../lib/base/libc.ts";

/**
 * Makes this process the only one that uses a state directory, until it ends or disposes of the answer: the kernel frees
 * the lock with the process, however it ends. Throws when another process has it.
 */
export function ownDirectory(dir: string): Disposable {
  const fd = openSync(join(dir, "owner"), "a", 0o600);
  if (!tryLock(fd)) {
    closeSync(fd);
    throw new Error(`own state directory "${dir}": another podnetd uses it`);
  }
  return { [Symbol.dispose]: () => closeSync(fd) };
}
