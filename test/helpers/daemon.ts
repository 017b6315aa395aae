import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { stringify } from "yaml";
import type { Lab, Place } from "./lab.ts";
import type { PluginRun } from "./plugin-call.ts";

export interface DaemonOptions {
  readonly lab: Lab;
  /** The network namespace that is the node; a Place whose `wrap` also enters a mount namespace does as well. */
  readonly node: Place;
  /** PodNetwork manifests by file name without ending: text, or an object that becomes YAML. */
  readonly networks?: Readonly<Record<string, unknown>>;
  /** Conflists of the node by file name. */
  readonly conflists?: Readonly<Record<string, unknown>>;
  /** Keys of the configuration file. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Folders of delegates' executables. */
  readonly binDirs?: readonly string[];
  readonly logLevel?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Default "off". */
  readonly metrics?: string;
  /** Until it is ready; default 30. */
  readonly startSeconds?: number;
}

/** A PodNetwork manifest of our own provider with this plugin configuration or list. */
export function podNetwork(name: string, parameters: unknown, metadata: object = {}): object {
  return {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name, ...metadata },
    spec: { parameters },
  };
}

/** podnetd in a node of its own, with folders of its own. Stop it at the end of the test: `await using daemon = await Daemon.start(...)`. */
export class Daemon {
  readonly socket: string;
  readonly stateDir: string;
  readonly networksDir: string;
  readonly confDir: string;
  /** Another build's podnetd, for the next start. */
  program = resolve("dist/bin/podnetd");
  readonly #options: DaemonOptions;
  readonly #folder: string;
  #child: ChildProcess | undefined;
  #log = "";

  private constructor(options: DaemonOptions) {
    this.#options = options;
    this.#folder = options.lab.folder();
    this.socket = join(this.#folder, "podnetd.sock");
    this.stateDir = join(this.#folder, "state");
    this.networksDir = join(this.#folder, "networks");
    this.confDir = join(this.#folder, "net.d");
    for (const folder of [this.stateDir, this.networksDir, this.confDir]) mkdirSync(folder);
    for (const [name, manifest] of Object.entries(options.networks ?? {}))
      this.writeNetwork(name, manifest);
    for (const [name, conflist] of Object.entries(options.conflists ?? {})) {
      writeFileSync(
        join(this.confDir, name),
        typeof conflist === "string" ? conflist : JSON.stringify(conflist),
      );
    }
    writeFileSync(join(this.#folder, "podnetd.yaml"), stringify(options.config ?? {}));
  }

  /** Resolves when the daemon says that it is ready; rejects with its log when it ends or says nothing for `startSeconds`. */
  static async start(options: DaemonOptions): Promise<Daemon> {
    const daemon = new Daemon(options);
    await daemon.restart();
    return daemon;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("podnetd does not run");
    return pid;
  }

  /** Everything that it printed, over all its starts. */
  get log(): string {
    return this.#log;
  }

  /** Writes a manifest as a whole (by rename), as an admin's tool should. */
  writeNetwork(name: string, manifest: unknown): void {
    const text = typeof manifest === "string" ? manifest : stringify(manifest);
    writeFileSync(join(this.networksDir, `${name}.yaml`), text);
  }

  /** Starts it again after stop() or kill(), with the same folders. */
  async restart(): Promise<void> {
    if (this.#child !== undefined) throw new Error("podnetd still runs");
    const { node, startSeconds = 30 } = this.#options;
    const [program = "", ...args] = node.wrap(this.#command());
    const child = spawn(program, args, {
      env: { ...process.env, ...this.#options.env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    await new Promise<void>((ready, failed) => {
      const fail = (why: string) =>
        failed(new Error(`podnetd did not start: ${why}:\n${this.#log}`));
      const timer = setTimeout(
        () => fail(`not ready within ${startSeconds} s`),
        startSeconds * 1000,
      );
      const mark = this.#log.length;
      const read = (text: string) => {
        this.#log += text;
        if (!this.#log.slice(mark).includes("ready")) return;
        clearTimeout(timer);
        ready();
      };
      child.stdout.setEncoding("utf8").on("data", read);
      child.stderr.setEncoding("utf8").on("data", read);
      child.once("error", (error) => fail(error.message));
      child.once("exit", (code, signal) => {
        clearTimeout(timer);
        fail(`exit ${code ?? signal}`);
      });
    });
  }

  /** Ends it with SIGTERM. Rejects when it does not end by itself within 20 s (it is killed then) or with a status other than 0. */
  async stop(): Promise<void> {
    const ended = await this.#end("SIGTERM");
    if (ended !== "0")
      throw new Error(`podnetd ended badly after SIGTERM: ${ended}:\n${this.#log.slice(-4000)}`);
  }

  /** Resolves when the running process has ended, for whatever reason; at once when there is none. */
  async ended(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    await once(child, "exit");
  }

  /** kill -9. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** What a runtime passes to the stub so that it reaches this daemon. */
  call(
    run: Omit<PluginRun, "config"> & { readonly networks?: unknown; readonly config?: object },
  ): PluginRun {
    const base = { cniVersion: "1.1.0", name: "podnet", type: "podnet", daemonSocket: this.socket };
    const networks = run.networks === undefined ? {} : { networks: run.networks };
    return {
      node: this.#options.node,
      path: this.#options.binDirs?.join(":") ?? "/nowhere",
      ...run,
      config: { ...base, ...networks, ...run.config },
    };
  }

  async #end(signal: "SIGTERM" | "SIGKILL"): Promise<string> {
    const child = this.#child;
    if (child === undefined) return "0";
    this.#child = undefined;
    if (child.exitCode !== null || child.signalCode !== null)
      return `exit ${child.exitCode ?? child.signalCode} before`;
    const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
    const ended = new Promise<string>((done) =>
      child.once("exit", (code, by) => done(String(code ?? by))),
    );
    child.kill(signal);
    const how = await ended;
    clearTimeout(timer);
    return how;
  }

  #command(): string[] {
    const options = this.#options;
    const fromSource = process.env["PODNET_FROM_SOURCE"] === "1";
    const program = fromSource
      ? [process.execPath, resolve("cmd/podnetd/main.ts")]
      : [this.program];
    const flags: Record<string, string> = {
      "networks-dir": this.networksDir,
      socket: this.socket,
      "state-dir": this.stateDir,
      "cni-conf-dir": this.confDir,
      "cni-bin-dir": options.binDirs?.join(":") ?? join(this.#folder, "bin"),
      metrics: options.metrics ?? "off",
      "log-level": options.logLevel ?? "info",
      config: join(this.#folder, "podnetd.yaml"),
    };
    return [...program, ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value])];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
