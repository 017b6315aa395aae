import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  lstatSync,
  openSync,
  statSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate, setTimeout } from "node:timers/promises";
import {
  createFile,
  ensureDir,
  openPlainFile,
  readPlainFile,
  removeFile,
  removeIfPossible,
} from "../../lib/base/files.ts";
import { formatIp, type Ip, isIp, parseIp } from "../../lib/base/ip.ts";
import { tryLock } from "../../lib/base/libc.ts";
import { AddressIndex, addressOfFile } from "./address-index.ts";

const temporaryName = ".podnet-tmp";
/** No owner is longer: a container id of 1,024 characters and an interface name. More is somebody else's file. */
const longestText = 1100;
const filesPerTurn = 100;
const longestPauseMs = 16;
/** How far into the past a directory's mtime is set, so that no change made from now on, on any file system's clock, can give the same one. */
const markAgeSeconds = 10;

/**
 * A directory of host-local's on-disk format: one file an address, which everybody (the reference's executable, other tools) changes
 * only under flock(2) on its `lock`. One object for a path in a process; calls from several flows wait for one another.
 *
 * What the files say is kept in memory between calls, so that a call's cost does not grow with their number. It is used only when it is
 * provably what is on disk: after each change the directory's mtime is set to a moment that has passed, which any later creation or
 * removal of a file replaces, however coarse the file system's clock is.
 */
export class AddressDirectory {
  readonly path: string;
  #index: AddressIndex | undefined;
  #mark = "";
  #last: Promise<void> = Promise.resolve();

  constructor(path: string) {
    this.path = path;
  }

  exists(): boolean {
    return statSync(this.path, { throwIfNoEntry: false })?.isDirectory() === true;
  }

  /**
   * Runs `work` while nobody else, in this process or another, changes the directory, which is made when it is missing. Waits without
   * blocking the process; rejects with the signal's reason when that ends first.
   */
  async locked<T>(signal: AbortSignal, work: (files: LockedAddresses) => T): Promise<T> {
    const before = this.#last;
    const { promise: done, resolve: leave } = Promise.withResolvers<void>();
    this.#last = before.then(() => done);
    try {
      await endedBy(signal, before);
      ensureDir(this.path, 0o755);
      const fd = await takeLock(join(this.path, "lock"), signal);
      try {
        const files = new LockedAddresses(this.path, await this.#load());
        try {
          return work(files);
        } finally {
          this.#seal(files);
        }
      } finally {
        closeSync(fd);
      }
    } finally {
      leave();
    }
  }

  async #load(): Promise<AddressIndex> {
    if (this.#index !== undefined && this.#mark === this.#stamp()) return this.#index;
    this.#mark = "";
    this.#index = await readDirectory(this.path);
    return this.#index;
  }

  #stamp(): string {
    const { dev, ino, mtimeNs } = statSync(this.path, { bigint: true });
    return `${dev}:${ino}:${mtimeNs}`;
  }

  /** Not done when nothing changed since the last time. A failure costs only the next call's time: the directory is read again. */
  #seal(files: LockedAddresses): void {
    if (this.#mark !== "" && !files.changed) return;
    try {
      const mark = Date.now() / 1000 - markAgeSeconds - Math.random();
      utimesSync(this.path, mark, mark);
      this.#mark = this.#stamp();
    } catch {
      this.#mark = "";
    }
  }
}

/** The directory while it is locked. Everything here is synchronous. System errors are thrown as they are. */
export class LockedAddresses {
  readonly #path: string;
  readonly #index: AddressIndex;
  changed = false;

  constructor(path: string, index: AddressIndex) {
    this.#path = path;
    this.#index = index;
  }

  has(ip: Ip): boolean {
    return this.#index.has(ip);
  }

  /** The addresses whose files, read now, name this owner. */
  addressesOf(owner: string): readonly Ip[] {
    return this.#index
      .filesOf(owner)
      .filter((file) => readOwner(join(this.#path, file)) === owner)
      .map(parseIp);
  }

  /** Every address file with its owner, read now: empty text for a file that was torn. */
  entries(): readonly (readonly [file: string, owner: string])[] {
    return this.#index.entries().map(([file]) => [file, readOwner(join(this.#path, file))]);
  }

  /**
   * Reserves an address: true, or false when it has a file. The file appears with its text in one step (link(2)), so that a process
   * that is killed here leaves either all of it or a temporary file, which the next reader of the directory removes.
   */
  reserve(ip: Ip, owner: string): boolean {
    const temporary = join(this.#path, temporaryName);
    this.changed = true;
    const file = join(this.#path, formatIp(ip));
    const isNew = createFile(file, temporary, owner);
    this.#index.add(ip, isNew ? owner : readOwner(file));
    return isNew;
  }

  /** Frees an address if its file, read now, still names this owner. */
  release(ip: Ip, owner: string): void {
    const file = join(this.#path, formatIp(ip));
    if (readOwner(file) === owner && lstatSync(file, { throwIfNoEntry: false })?.isFile()) {
      this.changed = true;
      removeFile(file);
    }
    if (lstatSync(file, { throwIfNoEntry: false }) === undefined) this.#index.remove(ip);
  }

  /** The address that the range set gave out last. undefined: none, or the file makes no sense. */
  lastReserved(set: number): Ip | undefined {
    try {
      const text = readPlainFile(join(this.#path, `last_reserved_ip.${set}`), longestText).trim();
      return isIp(text) ? parseIp(text) : undefined;
    } catch {
      return undefined;
    }
  }

  setLastReserved(set: number, ip: Ip): void {
    this.changed = true;
    overwrite(join(this.#path, `last_reserved_ip.${set}`), formatIp(ip));
  }
}

/**
 * Writes a short text over a file's old one. The file is not emptied before: a file system may take that for a replacement and write the new text out
 * to the disk at once (ext4's auto_da_alloc), which costs a hundred times as much. What a kill in between leaves is no address, or
 * another one, and the text is only a hint where to look for a free one first.
 */
function overwrite(path: string, text: string): void {
  const fd = openPlainFile(path, constants.O_WRONLY);
  try {
    const length = writeSync(fd, text, 0);
    if (fstatSync(fd).size > length) ftruncateSync(fd, length);
  } finally {
    closeSync(fd);
  }
}

async function takeLock(path: string, signal: AbortSignal): Promise<number> {
  const fd = openSync(
    path,
    constants.O_CREAT | constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    for (let pause = 1; !tryLock(fd); pause = Math.min(pause * 2, longestPauseMs)) {
      await setTimeout(pause, undefined, { signal });
    }
    return fd;
  } catch (error) {
    closeSync(fd);
    throw signal.aborted ? signal.reason : error;
  }
}

async function endedBy(signal: AbortSignal, wait: Promise<void>): Promise<void> {
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    await Promise.race([wait, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Reads every address file, a hundred a turn of the event loop, and removes what a killed writer of ours left. */
async function readDirectory(path: string): Promise<AddressIndex> {
  const index = new AddressIndex();
  let sinceTurn = 0;
  for (const name of await readdir(path)) {
    if (name === temporaryName) removeIfPossible(join(path, name));
    const ip = addressOfFile(name);
    if (ip === undefined) continue;
    index.add(ip, readOwner(join(path, name)));
    if (++sinceTurn % filesPerTurn === 0) await setImmediate();
  }
  return index;
}

/** The text of an address file. What can't be read, or is too long to be ours, has an owner that no attachment equals. */
function readOwner(path: string): string {
  try {
    const text = readPlainFile(path, longestText + 1);
    return Buffer.byteLength(text) > longestText ? foreignOwner : text.trim();
  } catch {
    return foreignOwner;
  }
}

/** Stands for content that is nobody's attachment; no container id looks like it. */
export const foreignOwner = "\r\n";
