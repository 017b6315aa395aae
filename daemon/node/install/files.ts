import { createHash } from "node:crypto";
import {
  closeSync,
  fchmodSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { errorCode } from "../../../lib/base/errors.ts";
import { ensureDir, removeFile } from "../../../lib/base/files.ts";

/** A file and its mode. */
export interface PlacedFile {
  readonly path: string;
  readonly content: string | Buffer;
  readonly mode: number;
}

/**
 * Puts a file in place in one step, whoever reads or executes the old one meanwhile, and so that a power loss leaves the old or the new
 * one. The temporary name begins with a dot and ends with what no runtime reads. Throws the system's error.
 */
export function placeFile({ path, content, mode }: PlacedFile): void {
  const folder = dirname(path);
  ensureDir(folder, 0o755);
  const temporary = join(folder, `.${basename(path)}.podnet-new`);
  removeFile(temporary);
  try {
    const fd = openSync(temporary, "wx", mode);
    try {
      // Not only by open(2): the umask would count.
      fchmodSync(fd, mode);
      writeFileSync(fd, content);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
  } catch (error) {
    removeFile(temporary);
    throw error;
  }
  syncFolder(folder);
}

/** Removes a file for good; succeeds when there is none. */
export function takeAway(path: string): void {
  removeFile(path);
  syncFolder(dirname(path));
}

function syncFolder(folder: string): void {
  try {
    const fd = openSync(folder, "r");
    try {
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    // Some file systems can't sync a folder; one that is gone has nothing to sync.
    if (!["EINVAL", "ENOENT", "ENOTSUP"].includes(errorCode(error) ?? "")) throw error;
  }
}

/** A file's text; undefined when there is none. */
export function textOf(path: string): string | undefined {
  return contentOf(path)?.toString("utf8");
}

/** Of a file's content; undefined when there is none. */
export function digestOf(path: string): string | undefined {
  const content = contentOf(path);
  return content === undefined ? undefined : createHash("sha256").update(content).digest("hex");
}

function contentOf(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** Where else in the folder a file of that text is: somebody renamed it. */
export function copiesOf(path: string, isSame: (text: string) => boolean): readonly string[] {
  const own = basename(path);
  return readdirSync(dirname(path), { withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== own && !entry.name.startsWith("."))
    .map(({ name }) => name)
    .filter((name) => {
      try {
        return isSame(textOf(join(dirname(path), name)) ?? "");
      } catch {
        return false;
      }
    });
}
