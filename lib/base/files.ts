import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  type Stats,
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

/** For temporary files: what is done must not become a failure because one stays. */
export function removeIfPossible(path: string): void {
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
  const fd = openPlainFile(path, constants.O_WRONLY | constants.O_APPEND);
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

/**
 * The text of a plain file, at most `limit` bytes of it. Throws for what is no plain file, by a link too: a pipe would hold the process for ever,
 * and a link could lead to any file.
 */
export function readPlainFile(path: string, limit: number): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  try {
    const { size } = requirePlain(path, fd);
    const bytes = Buffer.alloc(Math.min(size, limit));
    let length = 0;
    for (let read = -1; read !== 0 && length < bytes.length; length += read)
      read = readSync(fd, bytes, length, bytes.length - length, null);
    return bytes.toString("utf8", 0, length);
  } finally {
    closeSync(fd);
  }
}

/** Opens a plain file to be changed, and makes it (mode 0600) when there is none. As readPlainFile about what is none. The caller closes it. */
export function openPlainFile(path: string, flags: number): number {
  const safe = constants.O_CREAT | constants.O_NONBLOCK | constants.O_NOFOLLOW;
  const fd = openSync(path, flags | safe, 0o600);
  try {
    requirePlain(path, fd);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function requirePlain(path: string, fd: number): Stats {
  const stats = fstatSync(fd);
  if (!stats.isFile()) throw new Error(`open "${path}": it is no plain file`);
  return stats;
}

/** Removes a file; succeeds when there is none. Not by Node's rmSync, whose errors of a full or read-only disk have no code. */
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
