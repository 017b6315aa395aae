import fs from "node:fs";
import * as libc from "./libc.ts";

/** NSFS_MAGIC and PROC_SUPER_MAGIC of linux/magic.h are not enough: ioctl NS_GET_NSTYPE of linux/nsfs.h tells the kind. */
const NS_GET_NSTYPE = 0xb703;

// Deleting a link holds a pool thread for 20 ms and files need threads meanwhile, so the pool is larger than libuv's four.
// It has no effect where the pool was started before or somebody chose a size.
process.env["UV_THREADPOOL_SIZE"] ??= "16";

// libuv starts its pool at the first asynchronous call and threads inherit the namespace of their maker: started inside
// a window, the whole pool would live in a pod for good. So it is started here, before any window can open.
await fs.promises.stat("/proc/self");

/** A path does not lead to a network namespace. `code` is `ENOENT` when there is nothing, `EINVAL` when it is something else. */
export class NetnsError extends Error {
  override readonly name = "NetnsError";
  readonly code: string;
  readonly path: string;

  constructor(path: string, reason: ErrorOptions & { code: string; text: string }) {
    super(`open network namespace "${path}": ${reason.text}`, reason);
    this.code = reason.code;
    this.path = path;
  }
}

let own: Netns | undefined;

/**
 * A network namespace held by a descriptor: it lives at least until `close`. Work inside is synchronous: the thread goes there and back
 * within one `run`, so that nothing else of the process ever sees the other namespace.
 */
export class Netns {
  readonly path: string;
  readonly #shared: boolean;
  #fd: number;
  #cookie: bigint | undefined;

  private constructor(path: string, fd: number, shared: boolean) {
    this.path = path;
    this.#fd = fd;
    this.#shared = shared;
  }

  /**
   * Opens the namespace at a path (`/run/netns/x`, `/proc/PID/ns/net`).
   * Throws a NetnsError: code ENOENT when the path is missing, EINVAL when it is no network namespace, else the system's.
   */
  static open(path: string): Netns {
    const fd = openFile(path);
    try {
      requireNetns(fd, path);
      return new Netns(path, fd, false);
    } catch (error) {
      fs.closeSync(fd);
      throw error;
    }
  }

  /** The process' own namespace, as it was at the first call. Closing it does nothing: it is shared. */
  static current(): Netns {
    own ??= new Netns("/proc/self/ns/net", fs.openSync("/proc/thread-self/ns/net", "r"), true);
    return own;
  }

  /** The descriptor, for IFLA_NET_NS_FD. Throws when closed. */
  get fd(): number {
    if (this.#fd < 0)
      throw new NetnsError(this.path, { code: "EBADF", text: "it was closed before" });
    return this.#fd;
  }

  /** SO_NETNS_COOKIE: unique until reboot, where inode numbers are reused at once. */
  cookie(): bigint {
    this.#cookie ??= this.run(() => {
      const fd = libc.socket(libc.AF_INET, libc.SOCK_DGRAM, 0);
      try {
        return libc.netnsCookie(fd);
      } finally {
        libc.closeFd(fd);
      }
    });
    return this.#cookie;
  }

  /** Whether both are the same namespace, whatever their paths. */
  sameAs(other: Netns): boolean {
    return this.cookie() === other.cookie();
  }

  /**
   * Runs `work` with the calling thread inside the namespace and returns what it returns. `work` is synchronous and starts no
   * thread, no worker, and no promise (a child process started there lives there). When the thread can't come back the process ends.
   */
  run<T>(work: () => T): T {
    const fd = this.fd;
    const home = Netns.current().fd;
    libc.setns(fd, libc.CLONE_NEWNET);
    let result: T;
    try {
      result = work();
    } finally {
      comeBack(home);
    }
    if (isThenable(result))
      throw new TypeError(`run in network namespace "${this.path}": the work must be synchronous`);
    return result;
  }

  /** Idempotent. The namespace may end when nothing else holds it. */
  close(): void {
    if (this.#shared || this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    fs.closeSync(fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function comeBack(home: number): void {
  try {
    libc.setns(home, libc.CLONE_NEWNET);
  } catch {
    // Going on would do the node's work inside a pod.
    process.abort();
  }
}

function isThenable(value: unknown): boolean {
  return (
    typeof value === "object" &&
    value !== null &&
    "then" in value &&
    typeof value.then === "function"
  );
}

function openFile(path: string): number {
  try {
    // O_NONBLOCK: a FIFO at the path must not hang the daemon.
    return fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "EIO";
    const text = code === "ENOENT" ? "it does not exist" : code;
    throw new NetnsError(path, { code, text, cause: error });
  }
}

function requireNetns(fd: number, path: string): void {
  let type: number;
  try {
    type = libc.ioctl(fd, NS_GET_NSTYPE, new Uint8Array(8));
  } catch (error) {
    throw new NetnsError(path, { code: "EINVAL", text: "it is not a namespace", cause: error });
  }
  if (type !== libc.CLONE_NEWNET) {
    throw new NetnsError(path, { code: "EINVAL", text: "it is a namespace of another kind" });
  }
}
