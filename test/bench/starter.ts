import { type ChildProcessByStdio, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { type Place, runCommand } from "../helpers/lab.ts";

/** What a command of starter.c measured. */
export interface Measured {
  readonly wallMs: number;
  /** Of the started processes and their children. */
  readonly cpuMs: number;
  readonly maxRssKib: number;
  /** Each group's own wall time. */
  readonly groupsMs: readonly number[];
}

export interface Job {
  readonly program: string;
  readonly env: Readonly<Record<string, string>>;
  readonly config: unknown;
}

export function compile(source: string, folder: string): string {
  const program = join(folder, source.replace(/\.c$/, ""));
  runCommand([
    "gcc",
    "-O2",
    "-static",
    "-Wall",
    "-Wextra",
    "-o",
    program,
    join("test/bench", source),
  ]);
  return program;
}

/** starter.c, running inside a node. */
export class Starter {
  readonly #folder: string;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: Interface;
  #jobs = 0;

  constructor(node: Place, program: string, folder: string) {
    this.#folder = folder;
    const [command = "", ...args] = node.wrap([program]);
    this.#child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.#lines = createInterface({ input: this.#child.stdout });
  }

  /** Writes a job down; gives what `run` takes. */
  job(job: Job): string {
    this.#jobs += 1;
    const path = join(this.#folder, `job${this.#jobs}`);
    writeFileSync(`${path}.in`, job.config === undefined ? "" : JSON.stringify(job.config));
    const variables = Object.entries(job.env).map(([name, value]) => `${name}=${value}`);
    writeFileSync(path, `${[job.program, `${path}.in`, ...variables].join("\n")}\n`);
    return path;
  }

  /** Runs groups of jobs, so many groups at once. Throws with the output of a job that failed. */
  async run(groups: readonly (readonly string[])[], parallel = 1): Promise<Measured> {
    const answer = new Promise<string>((done) => this.#lines.once("line", done));
    this.#child.stdin.write(`${parallel} ${groups.map((group) => group.join(",")).join(" ")}\n`);
    const [wall = "", cpu = "", rss = "", failed = "", each = ""] = (await answer).split(" ");
    if (failed !== "0")
      throw new Error(`${failed} of the started programs failed: ${firstError(groups.flat())}`);
    return {
      wallMs: Number(wall) / 1e6,
      cpuMs: Number(cpu) / 1e3,
      maxRssKib: Number(rss),
      groupsMs: each.split(",").map((ns) => Number(ns) / 1e6),
    };
  }

  [Symbol.dispose](): void {
    this.#child.stdin.end();
    this.#lines.close();
  }
}

function firstError(jobs: readonly string[]): string {
  for (const path of jobs) {
    const text = readFileSync(`${path}.out`, "utf8");
    if (/"code"\s*:/.test(text)) return text;
  }
  return "no output";
}
