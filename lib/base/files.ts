import {
  closeSync,
  fstatSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { errorCode } from "./errors.ts";

function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let offset = 0; offset < bytes.length; ) offset += writeSync(fd, bytes, offset);
}

/**
 * Replaces a file in one step: readers see the old or the new content, never a part, and a process killed at any moment leaves
 * at most a `<path>.tmp`. Not flushed to the disk: what a power loss takes, a reboot has taken from the kernel too.
 * Follows no link at the temporary name. Mode 0600.
 */
export function replaceFile(path: string, text: string): void {
  const temporary = `${path}.tmp`;
  removeFile(temporary);
  const fd = openSync(temporary, "wx", 0o600);
  try {
    writeAll(fd, text);
    renameSync(temporary, path);
  } catch (error) {
    removeFile(temporary);
    throw error;
  } finally {
    closeSync(fd);
  }
}

/**
 * Makes a file that appears with its whole text in one step, by link(2): true, or false when there is one. `temporary`, in the same folder, is what a
 * kill may leave; whoever reads the folder passes over it, and the next call with that name replaces it. Mode 0600.
 */
export function createFile(path: string, temporary: string, text: string): boolean {
  removeFile(temporary);
  try {
    const fd = openSync(temporary, "wx", 0o600);
    try {
      writeAll(fd, text);
    } finally {
      closeSync(fd);
    }
    return linked(temporary, path);
  } finally {
    removeIfPossible(temporary);
  }
}

function linked(from: string, path: string): boolean {
  try {
    linkSync(from, path);
    return true;
  } catch (error) {
    if (errorCode(error) !== "EEXIST") throw error;
    return false;
  }
}

/** What is done must not become a failure because the temporary file stays. */
function removeIfPossible(path: string): void {
  try {
    removeFile(path);
  } catch {
    // As after a kill.
  }
}

/**
 * Adds to a file's end, and makes the file (mode 0600) when there is none. A kill may leave a part of the text; an error (a full
 * disk) leaves the file, or its absence, as it was.
 */
export function appendLine(path: string, text: string): void {
  const fd = openSync(path, "a", 0o600);
  try {
    const { size } = fstatSync(fd);
    try {
      writeAll(fd, text);
    } catch (error) {
      if (size === 0) unlinkSync(path);
      else ftruncateSync(fd, size);
      throw error;
    }
  } finally {
    closeSync(fd);
  }
}

/** Removes a file; succeeds when there is none. */
export function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
}

/** Makes a folder that only root may enter, and those above it. Safe to repeat. */
export function ensurePrivateDir(path: string): void {
  ensureDir(path, 0o700);
}

/**
 * Makes a folder of this mode, and those above it as far as they are missing. Safe to repeat. Not by Node's `recursive`: where a
 * folder can't be made although the one above it is there (below /proc), that tries for ever.
 */
export function ensureDir(path: string, mode: number): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
  if (dirname(path) !== path) ensureDir(dirname(path), 0o755);
  try {
    mkdirSync(path, mode);
  } catch (error) {
    if (errorCode(error) !== "EEXIST" || !statSync(path).isDirectory()) throw error;
  }
}
