import { readSync } from "node:fs";
import koffi from "koffi";
import { errorCode } from "../../lib/base/errors.ts";

/** The kernel's events by their bits of linux/inotify.h, as far as they change what a folder holds. */
const events = {
  MODIFY: 0x2,
  MOVED_FROM: 0x40,
  MOVED_TO: 0x80,
  CREATE: 0x100,
  DELETE: 0x200,
  DELETE_SELF: 0x400,
  MOVE_SELF: 0x800,
  UNMOUNT: 0x2000,
  Q_OVERFLOW: 0x4000,
} as const;

export type EventKind = keyof typeof events;

/** One change, as the kernel saw it. */
export interface FolderEvent {
  readonly kind: EventKind;
  /** As `watch` got it; empty when the kernel lost events, which is an event too. */
  readonly folder: string;
  /** Name of the file in the folder; empty when it is the folder itself. */
  readonly file: string;
}

const nonBlocking = 0x800;
const closeOnExec = 0x80000;
/** wd, mask, cookie, len: four words before the name. */
const headLength = 16;

/** Loaded when it is needed: what configures koffi for this process may be imported later. */
function loadCalls() {
  const libc = koffi.load("libc.so.6");
  return {
    init: libc.func("int inotify_init1(int flags)"),
    add: libc.func("int inotify_add_watch(int fd, str path, uint32_t mask)"),
    // Node's own close warns of descriptors that it did not open.
    close: libc.func("int close(int fd)"),
  };
}

/** Changes of folders, in order and without a gap: the kernel queues them, and tells when it could not. */
export class Inotify implements Disposable {
  readonly #calls = loadCalls();
  readonly #fd: number;
  readonly #folders = new Map<number, string>();
  readonly #buffer = Buffer.alloc(1 << 16);

  constructor() {
    this.#fd = this.#calls.init(nonBlocking | closeOnExec) as number;
    if (this.#fd < 0) throw new Error(`inotify_init1: errno ${koffi.errno()}`);
  }

  watch(folder: string): void {
    const mask = Object.values(events).reduce((sum, bit) => sum | bit, 0);
    const wd = this.#calls.add(this.#fd, folder, mask) as number;
    if (wd < 0) throw new Error(`inotify_add_watch "${folder}": errno ${koffi.errno()}`);
    this.#folders.set(wd, folder);
  }

  /** What happened since the last call. Does not wait. */
  read(): FolderEvent[] {
    const found: FolderEvent[] = [];
    for (;;) {
      const length = this.#fill();
      if (length === 0) return found;
      for (let at = 0; at < length; ) {
        const nameLength = this.#buffer.readUInt32LE(at + 12);
        found.push(...this.#parse(at, nameLength));
        at += headLength + nameLength;
      }
    }
  }

  #fill(): number {
    try {
      return readSync(this.#fd, this.#buffer);
    } catch (error) {
      if (errorCode(error) === "EAGAIN") return 0;
      throw error;
    }
  }

  #parse(at: number, nameLength: number): FolderEvent[] {
    const folder = this.#folders.get(this.#buffer.readInt32LE(at)) ?? "";
    const mask = this.#buffer.readUInt32LE(at + 4);
    const name = this.#buffer.toString("utf8", at + headLength, at + headLength + nameLength);
    const file = name.replace(/\0+$/, "");
    const kinds = Object.entries(events).filter(([, bit]) => (mask & bit) !== 0);
    return kinds.map(([kind]) => ({ kind: kind as EventKind, folder, file }));
  }

  [Symbol.dispose](): void {
    this.#calls.close(this.#fd);
  }
}
