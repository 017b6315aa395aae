import { type ChildProcess, spawn } from "node:child_process";
import type { Place } from "./lab.ts";

/** A program that a test keeps running; what it prints is kept. */
export class RunningProgram {
  readonly #name: string;
  readonly #child: ChildProcess;
  #output = "";

  constructor(name: string, place: Place, command: readonly string[]) {
    const [program = "", ...args] = place.wrap(command);
    this.#name = name;
    this.#child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
    const keep = (text: string) => {
      this.#output = (this.#output + text).slice(-200_000);
    };
    this.#child.stdout?.setEncoding("utf8").on("data", keep);
    this.#child.stderr?.setEncoding("utf8").on("data", keep);
    this.#child.stdin?.on("error", () => undefined);
  }

  get output(): string {
    return this.#output;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Throws, with what it printed last, when it has ended. */
  mustRun(): void {
    const { exitCode, signalCode } = this.#child;
    if (exitCode === null && signalCode === null) return;
    throw new Error(
      `${this.#name} ended (${exitCode ?? signalCode}):\n${this.#output.slice(-4000)}`,
    );
  }

  write(text: string): void {
    this.#child.stdin?.write(text);
  }

  /** TERM, and KILL after the seconds. */
  async stop(seconds = 10): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise((done) => this.#child.once("exit", done));
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), seconds * 1000);
    await ended;
    clearTimeout(timer);
  }
}
