import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniVerb } from "../../lib/cni/types.ts";
import type { Place } from "./lab.ts";
import type { PluginAnswer } from "./plugin-call.ts";

/** One call of a plugin (or a bare IPAM plugin) of daemon/plugins/registry.ts. */
export interface InProcessRun {
  readonly type: string;
  readonly verb: CniVerb;
  readonly containerId: string;
  readonly ifName: string;
  readonly netns?: string;
  readonly args?: string;
  /** As an executable would get it: with `name`, `cniVersion`, `runtimeConfig`, `prevResult`, `cni.dev/valid-attachments`. */
  readonly config: JsonObject;
  /** The call's signal ends after this time; default 30. */
  readonly seconds?: number;
}

const processEnded: PluginAnswer = {
  status: null,
  stdout: "",
  stderr: "the process ended",
  json: undefined,
};

/**
 * A process inside a test's node that runs podnet's plugins as podnetd does, several calls at a time if they come so: plugins write the
 * sysctls of the namespace that their process lives in. `await using plugins = InProcess.start(node)`.
 */
export class InProcess {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: PluginAnswer) => void>();
  #next = 0;
  #ended = false;

  private constructor(child: ChildProcess) {
    this.#child = child;
    if (child.stdout === null) throw new Error("in-process plugins: no stdout");
    createInterface({ input: child.stdout }).on("line", (line) => this.#take(line));
    child.on("close", () => {
      this.#ended = true;
      for (const done of this.#waiting.values()) done(processEnded);
      this.#waiting.clear();
    });
  }

  /** Without a node it runs where the test runs: for IPAM plugins, which change no namespace. */
  static start(node?: Place): InProcess {
    // The virtual machine has it bundled: stripping types there takes seconds.
    const child = process.env["PODNET_IN_PROCESS_CHILD"] ?? "test/helpers/in-process-child.ts";
    const command = [process.execPath, resolve(child)];
    const [program = "", ...args] = node?.wrap(command) ?? command;
    return new InProcess(spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] }));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Never throws for what the plugin does: status 1 and `{code, msg}` are an error; code -1 is one that is no CniError. */
  run(run: InProcessRun): Promise<PluginAnswer> {
    if (this.#ended) return Promise.resolve(processEnded);
    const id = this.#next++;
    const { promise, resolve: done } = Promise.withResolvers<PluginAnswer>();
    this.#waiting.set(id, done);
    this.#child.stdin?.write(`${JSON.stringify({ id, run })}\n`);
    return promise;
  }

  /** As run, and throws unless it succeeded. */
  async mustRun(run: InProcessRun): Promise<PluginAnswer["json"]> {
    const { status, json, stderr } = await this.run(run);
    if (status !== 0) throw new Error(`${run.type} ${run.verb}: ${JSON.stringify(json)}${stderr}`);
    return json;
  }

  /** Ends the process by SIGKILL, as a crash does. */
  async kill(): Promise<void> {
    const ended = once(this.#child, "close");
    this.#child.kill("SIGKILL");
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return;
    const ended = once(this.#child, "close");
    this.#child.stdin?.end();
    await ended;
  }

  #take(line: string): void {
    const { id, status, json } = JSON.parse(line) as {
      id: number;
      status: number;
      json?: PluginAnswer["json"];
    };
    this.#waiting.get(id)?.({ status, stdout: JSON.stringify(json ?? ""), stderr: "", json });
    this.#waiting.delete(id);
  }
}
