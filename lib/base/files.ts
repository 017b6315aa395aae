import { closeSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Replaces a file in one step: readers see the old or the new content, never a part, and a process killed at any moment leaves
 * at most a `<path>.tmp`. Not flushed to the disk: what a power loss takes, a reboot has taken from the kernel too.
 * Follows no link at the temporary name. Mode 0600.
 */
export function replaceFile(path: string, text: string): void {
  const temporary = `${path}.tmp`;
  rmSync(temporary, { force: true });
  const fd = openSync(temporary, "wx", 0o600);
  try {
    const bytes = Buffer.from(text);
    for (let offset = 0; offset < bytes.length; ) offset += writeSync(fd, bytes, offset);
  } finally {
    closeSync(fd);
  }
  renameSync(temporary, path);
}

/** Makes a folder that only root may enter, and those above it. Safe to repeat. */
export function ensurePrivateDir(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  mkdirSync(path, { recursive: true, mode: 0o700 });
}
