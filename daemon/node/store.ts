import { createHash } from "node:crypto";
import { existsSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { decode } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import {
  appendLine,
  ensurePrivateDir,
  readPlainFile,
  removeFile,
  replaceFile,
} from "../../lib/base/files.ts";
import type { Log } from "../../lib/base/log.ts";
import { asFailure } from "./failure.ts";
import { type RecordKey, type SandboxRecord, sandboxRecord } from "./record.ts";

const longestName = 200;
/** Lines of a record's file, after which it is written anew with its last one alone. */
const mostLines = 32;
/** Bytes: far more than 32 lines of any record that fits an annotation's limits. */
const longestFile = 1 << 28;
/** So many calls are remembered that were given back. */
const mostGivenBack = 4_096;

/**
 * A name for the file of a record: readable, unambiguous (`@` is in no container id) and short enough for any file system.
 */
function fileName(key: RecordKey): string {
  const name = keyText(key);
  if (Buffer.byteLength(name) <= longestName) return `${name}.json`;
  return `sha256-${createHash("sha256").update(name).digest("hex")}.json`;
}

function keyText(key: RecordKey): string {
  return `${key.containerId}@${key.ifName}`;
}

function onDisk(action: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    throw asFailure(error, action);
  }
}

/** The last key of a line, over everything before it. Builds that don't know it pass over it, as over any key. */
const checksum = /,"sum":"([0-9a-f]{8})"\}$/;

function encodeLine(record: SandboxRecord): string {
  const body = JSON.stringify(record).slice(0, -1);
  return `${body},"sum":"${sumOf(body)}"}\n`;
}

/** A byte that changed could send DEL to another place than ADD's, so a line must be whole. Lines of older builds have no sum. */
function decodeLine(line: string): SandboxRecord {
  const [sum, expected] = checksum.exec(line) ?? [];
  if (sum !== undefined && sumOf(line.slice(0, -sum.length)) !== expected)
    throw new Error("its checksum is wrong: the file was damaged or edited");
  return decode(sandboxRecord, JSON.parse(line), "record");
}

function sumOf(text: string): string {
  return crc32(text).toString(16).padStart(8, "0");
}

interface Entry {
  readonly record: SandboxRecord;
  /** Of its file; `mostLines` also where the file must be written anew before anything is added to it. */
  lines: number;
}

/**
 * What podnet attached on this node, one file a record below `<stateDir>/records`, all of them in memory too. A file has a line for
 * each state that the record was in; the last complete one counts. (Appending is an order cheaper than replacing a file,
 * for which file systems write the new one out at once.) So a kill at any moment leaves the record as it was before or after; a
 * file without a complete line is an intent that was cut off before anything was done.
 * Only one process may own the folder. A file that can't be read is set aside as `<name>.unreadable`, told of in the log, and
 * shown by `unreadable`; it never stops the daemon.
 */
export class Store {
  readonly #dir: string;
  readonly #log: Log;
  readonly #entries = new Map<string, Entry>();
  readonly #unreadable: string[] = [];
  readonly #givenBack = new Set<string>();

  constructor(stateDir: string, log: Log) {
    this.#dir = join(stateDir, "records");
    this.#log = log;
    ensurePrivateDir(this.#dir);
    this.#load();
  }

  get(key: RecordKey): SandboxRecord | undefined {
    return this.#entries.get(keyText(key))?.record;
  }

  /** The record of a container that has an interface of that name among its attachments. */
  holderOf(containerId: string, ifName: string): SandboxRecord | undefined {
    for (const { record } of this.#entries.values()) {
      if (record.containerId !== containerId) continue;
      if (record.attachments.some((attachment) => attachment.ifName === ifName)) return record;
    }
    return undefined;
  }

  all(): SandboxRecord[] {
    return [...this.#entries.values()].map(({ record }) => record);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Files that were set aside because nobody could read them, and are still there. */
  get unreadable(): readonly string[] {
    return this.#unreadable.filter((path) => existsSync(path));
  }

  /** Writes the record, safe against a kill at any moment. Throws a CniError (code 11 on a full disk); the record is as before then. */
  put(record: SandboxRecord): void {
    const key = keyText(record);
    const path = join(this.#dir, fileName(record));
    const lines = (this.#entries.get(key)?.lines ?? 0) + 1;
    const text = encodeLine(record);
    onDisk(`write record "${path}"`, () => {
      if (lines <= mostLines) appendLine(path, text);
      else replaceFile(path, text);
    });
    this.#entries.set(key, { record, lines: lines <= mostLines ? lines : 1 });
    this.#givenBack.delete(key);
  }

  /** Removes the record of what is given back, all of it. Safe to repeat. */
  remove(key: RecordKey): void {
    const path = join(this.#dir, fileName(key));
    onDisk(`remove record "${path}"`, () => removeFile(path));
    const text = keyText(key);
    this.#entries.delete(text);
    this.#givenBack.add(text);
    const [oldest] = this.#givenBack;
    if (this.#givenBack.size > mostGivenBack && oldest !== undefined)
      this.#givenBack.delete(oldest);
  }

  /**
   * Removes the file of a record that could not be read, when what it stood for is deleted; gives its path, and undefined when there is
   * none. What it held and nobody lists is left to GC.
   */
  forgetUnreadable(key: RecordKey): string | undefined {
    const path = join(this.#dir, `${fileName(key)}.unreadable`);
    if (!this.#unreadable.includes(path) || !existsSync(path)) return undefined;
    onDisk(`remove record "${path}"`, () => removeFile(path));
    return path;
  }

  /** Its record was removed lately by this process: nothing of it is left. */
  wasGivenBack(key: RecordKey): boolean {
    return this.#givenBack.has(keyText(key));
  }

  #load(): void {
    for (const name of readdirSync(this.#dir)) {
      const path = join(this.#dir, name);
      if (name.endsWith(".tmp")) this.#tidy(() => removeFile(path));
      else if (name.endsWith(".json")) this.#loadFile(path);
      else if (name.endsWith(".unreadable")) this.#unreadable.push(path);
    }
  }

  #loadFile(path: string): void {
    try {
      const lines = readPlainFile(path, longestFile).split("\n");
      // What follows the last line break was cut off while it was written.
      const last = lines.at(-2);
      if (last === undefined) {
        this.#tidy(() => removeFile(path));
        return;
      }
      const record = decodeLine(last);
      if (fileName(record) !== path.slice(this.#dir.length + 1))
        throw new Error("it is of another container");
      const isWhole = lines.at(-1) === "" || this.#tidy(() => replaceFile(path, `${last}\n`));
      this.#entries.set(keyText(record), { record, lines: isWhole ? lines.length - 1 : mostLines });
    } catch (error) {
      this.#setAside(path, error);
    }
  }

  #setAside(path: string, error: unknown): void {
    const aside = `${path}.unreadable`;
    const file = this.#tidy(() => renameSync(path, aside)) ? aside : path;
    this.#unreadable.push(file);
    this.#log.error({ file, fault: errorText(error) }, "record is unreadable, set aside");
  }

  /** Does what makes the folder tidy, where it can be done: a full or read-only disk must not keep the daemon from its records. */
  #tidy(work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.#log.warn({ fault: errorText(error) }, "folder of records can't be tidied");
      return false;
    }
  }
}
