import { createHash } from "node:crypto";
import { readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { decode } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { ensurePrivateDir, replaceFile } from "../../lib/base/files.ts";
import type { Log } from "../../lib/base/log.ts";
import { type RecordKey, type SandboxRecord, sandboxRecord } from "./record.ts";

const longestName = 200;

/**
 * A name for the file of a record: readable, unambiguous (`@` is in no container id) and short enough for any file system.
 */
function fileName(key: RecordKey): string {
  const name = `${key.containerId}@${key.ifName}`;
  if (Buffer.byteLength(name) <= longestName) return `${name}.json`;
  return `sha256-${createHash("sha256").update(name).digest("hex")}.json`;
}

function keyText(key: RecordKey): string {
  return `${key.containerId}@${key.ifName}`;
}

/**
 * What podnet attached on this node, one file a record below `<stateDir>/records`, all of them in memory too.
 * Only one process may own the folder. A file that can't be read is set aside as `<name>.unreadable`, told of in the log, and
 * shown by `unreadable`; it never stops the daemon.
 */
export class Store {
  readonly #dir: string;
  readonly #log: Log;
  readonly #records = new Map<string, SandboxRecord>();
  readonly #unreadable: string[] = [];

  constructor(stateDir: string, log: Log) {
    this.#dir = join(stateDir, "records");
    this.#log = log;
    ensurePrivateDir(this.#dir);
    this.#load();
  }

  get(key: RecordKey): SandboxRecord | undefined {
    return this.#records.get(keyText(key));
  }

  all(): SandboxRecord[] {
    return [...this.#records.values()];
  }

  get size(): number {
    return this.#records.size;
  }

  /** Files that were set aside because nobody could read them. */
  get unreadable(): readonly string[] {
    return this.#unreadable;
  }

  /** Writes the record, durably against a kill at any moment. Throws the file system's error. */
  put(record: SandboxRecord): void {
    replaceFile(join(this.#dir, fileName(record)), JSON.stringify(record));
    this.#records.set(keyText(record), record);
  }

  /** Removes the record. Safe to repeat. */
  remove(key: RecordKey): void {
    rmSync(join(this.#dir, fileName(key)), { force: true });
    this.#records.delete(keyText(key));
  }

  #load(): void {
    for (const name of readdirSync(this.#dir)) {
      const path = join(this.#dir, name);
      if (name.endsWith(".tmp")) rmSync(path, { force: true });
      else if (name.endsWith(".json")) this.#loadFile(path);
      else if (name.endsWith(".unreadable")) this.#unreadable.push(path);
    }
  }

  #loadFile(path: string): void {
    try {
      const record = decode(sandboxRecord, JSON.parse(readFileSync(path, "utf8")), "record");
      this.#records.set(keyText(record), record);
    } catch (error) {
      const aside = `${path}.unreadable`;
      renameSync(path, aside);
      this.#unreadable.push(aside);
      this.#log.error({ file: aside, fault: errorText(error) }, "record is unreadable, set aside");
    }
  }
}
