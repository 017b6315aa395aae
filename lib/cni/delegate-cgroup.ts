import { access, constants, mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, errorText } from "../base/errors.ts";
import type { Log } from "../base/log.ts";

export interface DelegateCgroupsOptions {
  /** Where the node's cgroup file systems are mounted. */
  readonly root?: string;
  /** A name of this daemon's own, the same after a restart: whatever runs in it then is a leftover. */
  readonly name: string;
  readonly log: Log;
}

/** The cgroup of one delegate call. Disposing it ends what still runs in it and removes it. */
export interface DelegateCgroup extends AsyncDisposable {
  /** The file that the delegate writes itself into. */
  readonly procs: string;
}

/** Milliseconds between looks at a cgroup whose processes are ending, and how many looks. */
const endPause = 10;
const endLooks = 200;

/**
 * Cgroups for delegates, so that their memory is not the daemon's and nothing that they start gets away. On cgroup v2 below its root,
 * on v1 (and the hybrid of both) in the memory hierarchy. Where none can be made, delegates run without; the log says so once.
 */
export class DelegateCgroups {
  readonly #dir: string | undefined;
  readonly #log: Log;
  #count = 0;

  private constructor(dir: string | undefined, log: Log) {
    this.#dir = dir;
    this.#log = log;
  }

  /** Finds the hierarchy, and ends and removes what an earlier daemon of this name left. Never rejects. */
  static async open({
    root = "/sys/fs/cgroup",
    name,
    log,
  }: DelegateCgroupsOptions): Promise<DelegateCgroups> {
    const base = await hierarchy(root);
    const dir = join(base, "podnet", name);
    try {
      // On anything but a cgroup file system mkdir would make plain folders.
      await access(join(base, "cgroup.procs"), constants.W_OK);
      await mkdir(dir, { recursive: true });
      const cgroups = new DelegateCgroups(dir, log);
      await cgroups.endLeftovers();
      return cgroups;
    } catch (error) {
      log.warn({ dir }, `delegates run in the daemon's own cgroup: ${errorText(error)}`);
      return new DelegateCgroups(undefined, log);
    }
  }

  /** Whether delegates get cgroups at all. */
  get available(): boolean {
    return this.#dir !== undefined;
  }

  /** Makes the cgroup of one call; `name` is for people who look. undefined where there are none. */
  async create(name: string): Promise<DelegateCgroup | undefined> {
    if (this.#dir === undefined) return undefined;
    this.#count += 1;
    const safe = name.replace(/[^a-zA-Z0-9_.-]/g, "-").slice(0, 150);
    const dir = join(this.#dir, `${safe}.${process.pid}-${this.#count}`);
    try {
      await mkdir(dir);
    } catch (error) {
      this.#log.warn({ dir }, `make the cgroup of a delegate: ${errorText(error)}`);
      return undefined;
    }
    return { procs: join(dir, "cgroup.procs"), [Symbol.asyncDispose]: () => this.#remove(dir) };
  }

  /** Ends every delegate that still runs and removes the cgroups. Only while no call is under way. */
  async endLeftovers(): Promise<void> {
    if (this.#dir === undefined) return;
    for (const entry of await readdir(this.#dir, { withFileTypes: true })) {
      if (entry.isDirectory()) await this.#remove(join(this.#dir, entry.name));
    }
  }

  /** Ends leftovers and removes this daemon's cgroup itself, and the one above when no other daemon has it. */
  async close(): Promise<void> {
    if (this.#dir === undefined) return;
    await this.endLeftovers();
    await this.#remove(this.#dir);
    await rmdir(dirname(this.#dir)).catch(() => undefined);
  }

  async #remove(dir: string): Promise<void> {
    try {
      await removeCgroup(dir);
    } catch (error) {
      this.#log.warn({ dir }, `remove the cgroup of a delegate: ${errorText(error)}`);
    }
  }
}

async function hierarchy(root: string): Promise<string> {
  const unified = await readable(join(root, "cgroup.controllers"));
  return unified ? root : join(root, "memory");
}

async function readable(path: string): Promise<boolean> {
  return access(path, constants.R_OK).then(
    () => true,
    () => false,
  );
}

/** Ends what runs in a cgroup and removes it. Fine when it is gone already; rejects when its processes do not end. */
async function removeCgroup(dir: string): Promise<void> {
  for (let look = 0; look < endLooks; look++) {
    if (await removed(dir)) return;
    await endProcesses(dir);
    await delay(endPause);
  }
  await rmdir(dir);
}

async function removed(dir: string): Promise<boolean> {
  try {
    await rmdir(dir);
    return true;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return true;
    if (errorCode(error) === "EBUSY") return false;
    throw error;
  }
}

async function endProcesses(dir: string): Promise<void> {
  // Linux 5.14 and v2 only; elsewhere the processes one by one, as often as it takes.
  const killed = await writeFile(join(dir, "cgroup.kill"), "1").then(
    () => true,
    () => false,
  );
  if (killed) return;
  const pids = await readFile(join(dir, "cgroup.procs"), "utf8");
  for (const pid of pids.split("\n").filter((line) => line !== "")) endProcess(Number(pid));
}

function endProcess(pid: number): void {
  // 0 stands for a process of another pid namespace, and would mean our own group to kill(2).
  if (pid <= 0) return;
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (errorCode(error) !== "ESRCH") throw error;
  }
}
