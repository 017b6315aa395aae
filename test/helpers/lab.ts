import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A network namespace that a test made, as "the node" or "a pod". */
export interface Place {
  /** As `ip -n NAME` takes it. */
  readonly name: string;
  /** As CNI_NETNS takes it. */
  readonly path: string;
  /** The command line that runs a program inside. The process is the program itself: nsenter execs it. */
  wrap(command: readonly string[]): string[];
  /** Runs a program inside and gives its stdout; throws with its stderr when it fails. */
  run(program: string, ...args: string[]): string;
}

export const namespacePrefix = "podnet-test-";

let made = 0;

/**
 * Namespaces and folders of one test, all removed at its end, whatever happened: `using lab = new Lab()`.
 * Nothing outside of them is touched, so tests may run side by side.
 */
export class Lab {
  readonly #names: string[] = [];
  readonly #folders: string[] = [];
  readonly #onExit = () => this[Symbol.dispose]();

  constructor() {
    process.once("exit", this.#onExit);
  }

  /** A namespace with its loopback up, as a machine has it. */
  node(): Place {
    const place = this.#netns();
    place.run("ip", "link", "set", "lo", "up");
    return place;
  }

  /** A namespace as a runtime hands it over: empty, its loopback down. */
  pod(): Place {
    return this.#netns();
  }

  /** A fresh folder. */
  folder(): string {
    const folder = mkdtempSync(join(tmpdir(), namespacePrefix));
    this.#folders.push(folder);
    return folder;
  }

  /** Removes a namespace before the test ends, as a runtime does; succeeds when it is gone already. */
  remove(place: Place): void {
    spawnSync("ip", ["netns", "del", place.name], { stdio: "ignore" });
  }

  #netns(): Place {
    made += 1;
    const name = `${namespacePrefix}${process.pid}-${made}`;
    execFileSync("ip", ["netns", "add", name]);
    this.#names.push(name);
    const path = `/run/netns/${name}`;
    const wrap = (command: readonly string[]) => ["nsenter", `--net=${path}`, "--", ...command];
    return { name, path, wrap, run: (program, ...args) => runCommand(wrap([program, ...args])) };
  }

  [Symbol.dispose](): void {
    process.removeListener("exit", this.#onExit);
    for (const name of this.#names.splice(0))
      spawnSync("ip", ["netns", "del", name], { stdio: "ignore" });
    for (const folder of this.#folders.splice(0)) rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs a command and gives its stdout; throws an error with the command and its stderr when it fails. */
export function runCommand(command: readonly string[]): string {
  const [program = "", ...args] = command;
  const done = spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 26 });
  if (done.error !== undefined) throw done.error;
  if (done.status !== 0) {
    throw new Error(
      `${command.join(" ")}: exit ${done.status ?? done.signal}: ${done.stderr.trim() || done.stdout.trim()}`,
    );
  }
  return done.stdout;
}

/** Namespaces that test processes left behind when they were killed; called once before a run. */
export function sweepNamespaces(): void {
  let names: string[] = [];
  try {
    names = readdirSync("/run/netns");
  } catch {
    return;
  }
  for (const name of names) {
    const pid = Number(/^podnet-test-(\d+)-\d+$/.exec(name)?.[1] ?? Number.NaN);
    if (Number.isInteger(pid) && !alive(pid))
      spawnSync("ip", ["netns", "del", name], { stdio: "ignore" });
  }
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
