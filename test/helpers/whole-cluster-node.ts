import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Lab, type Place, runCommand } from "./lab.ts";
import { cgroupRoots, removeCgroup } from "./mounts.ts";
import { RunningProgram } from "./process.ts";

/** Ends with the program that started it, however that ended. */
const tied = ["setpriv", "--pdeathsig", "KILL"];

/**
 * A machine of its own as far as namespaces give one: network, mounts, processes, and a cgroup for its pods. What ends it ends
 * everything that runs on it.
 */
export class ClusterNode implements Place {
  readonly name: string;
  readonly path: string;
  /** What is kept over a reboot: `upper/etc`, `upper/var`, ... as they were written over the machine's own. */
  readonly folder: string;
  readonly #network: Place;
  #holder: ChildProcess | undefined;
  #init = 0;

  private constructor(lab: Lab) {
    this.#network = lab.node();
    this.name = this.#network.name;
    this.path = this.#network.path;
    this.folder = lab.folder();
  }

  static async start(lab: Lab): Promise<ClusterNode> {
    sweepCgroups();
    const node = new ClusterNode(lab);
    node.#makeCgroup();
    await node.boot();
    return node;
  }

  /** The cgroup of the node's pods, as its path below each hierarchy. */
  get cgroup(): string {
    return `/${this.name}`;
  }

  /** Where the test itself finds a path of the node. */
  outside(path: string): string {
    return `/proc/${this.#init}/root${path}`;
  }

  wrap(command: readonly string[]): string[] {
    const into = [`--target=${this.#init}`, "--mount", "--pid", `--net=${this.path}`, "--wd=/"];
    return ["nsenter", ...into, "--", ...tied, ...command];
  }

  run(program: string, ...args: string[]): string {
    return runCommand(this.wrap([program, ...args]));
  }

  /** Starts a program that runs until it is stopped or the node goes down. */
  program(
    name: string,
    command: readonly string[],
    env: Record<string, string> = {},
  ): RunningProgram {
    const variables = Object.entries(env).map(([key, value]) => `${key}=${value}`);
    return new RunningProgram(name, this, ["env", ...variables, ...command]);
  }

  /** Writes a file; folders are made. */
  write(path: string, content: string | Uint8Array): void {
    const file = this.outside(path);
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(file, content);
  }

  read(path: string): string {
    return readFileSync(this.outside(path), "utf8");
  }

  exists(path: string): boolean {
    return existsSync(this.outside(path));
  }

  async boot(): Promise<void> {
    const script = join(import.meta.dirname, "whole-cluster-boot.sh");
    const namespaces = ["unshare", "--mount", "--propagation", "slave", "--pid", "--fork"];
    const command = [
      ...tied,
      ...this.#network.wrap([...namespaces, "--kill-child", "--mount-proc", "sh", script]),
      this.folder,
      this.name,
    ];
    const [program = "", ...args] = command;
    const holder = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#holder = holder;
    let said = "";
    const keep = (text: string) => {
      said += text;
    };
    holder.stdout.setEncoding("utf8").on("data", keep);
    holder.stderr.setEncoding("utf8").on("data", keep);
    for (const until = Date.now() + 20_000; !said.includes("node is up"); await sleep(10)) {
      if (holder.exitCode !== null || Date.now() > until)
        throw new Error(`the test's node did not come up:\n${said}`);
    }
    this.#init = Number(
      readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8").trim(),
    );
  }

  /** Ends all that runs on the node, at once and without a word to it; `boot` brings the node up again. */
  async crash(): Promise<void> {
    const holder = this.#holder;
    this.#holder = undefined;
    if (holder === undefined) return;
    const ended = new Promise((done) => holder.once("exit", done));
    if (holder.exitCode === null && holder.signalCode === null) {
      holder.kill("SIGKILL");
      await ended;
    }
    for (const until = Date.now() + 20_000; existsSync(`/proc/${this.#init}`); await sleep(10)) {
      if (Date.now() > until) throw new Error("the test's node did not go down within 20 s");
    }
    removeCgroup(this.name);
  }

  /** The links of a machine that has just started: those that were made since are gone with their namespaces. */
  async reboot(keptLinks: readonly string[]): Promise<void> {
    await this.crash();
    const links: { ifname: string }[] = JSON.parse(this.#network.run("ip", "-j", "link"));
    for (const { ifname } of links)
      if (ifname !== "lo" && !keptLinks.includes(ifname))
        this.#network.run("ip", "link", "del", ifname);
    this.#network.run("nft", "flush", "ruleset");
    this.#makeCgroup();
    await this.boot();
  }

  #makeCgroup(): void {
    for (const root of cgroupRoots()) {
      const folder = join(root, this.name);
      mkdirSync(folder, { recursive: true });
      for (const file of ["cpuset.cpus", "cpuset.mems"]) {
        if (!existsSync(join(folder, file))) continue;
        writeFileSync(join(folder, file), readFileSync(join(root, file), "utf8"));
      }
      // All pods together would have the share of one process of the machine, and starve beside other tests.
      const shares = join(folder, "cpu.shares");
      if (existsSync(shares)) writeFileSync(shares, "32768");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.crash();
  }
}

/** Cgroups of nodes whose test was killed: namespaces go by themselves, these do not. */
function sweepCgroups(): void {
  for (const name of cgroupRoots().flatMap((root) => readdirSync(root))) {
    const pid = /^podnet-test-(\d+)-\d+$/.exec(name)?.[1];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) removeCgroup(name);
  }
}
