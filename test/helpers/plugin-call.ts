import { spawn } from "node:child_process";
import { resolve } from "node:path";
import type { CniVerb } from "../../lib/cni/types.ts";
import type { Place } from "./lab.ts";

/** One start of a CNI executable, as a runtime does it. */
export interface PluginRun {
  /** Path of the executable; without it podnet's stub, dist/bin/podnet. */
  readonly program?: string;
  readonly verb: CniVerb | (string & {});
  readonly containerId?: string;
  readonly netns?: string;
  readonly ifName?: string;
  readonly args?: string;
  readonly path?: string;
  /** The network configuration: an object, or text or bytes that go in as they are. */
  readonly config?: unknown;
  /** Further variables. The executable gets no others than these and the CNI ones. */
  readonly env?: Readonly<Record<string, string>>;
  /** The node that it runs in; without it where the test runs. */
  readonly node?: Place;
  /** Default 60. */
  readonly seconds?: number;
  /** Ends it by SIGKILL: the runtime has died. */
  readonly signal?: AbortSignal;
}

export interface PluginAnswer {
  /** Exit status; null when it was ended by a signal (the time ran out). */
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** stdout as JSON (a result or an error object); undefined when it is empty or not JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly json: any;
}

export const stubPath: string = resolve("dist/bin/podnet");

/** Starts a CNI executable and waits for its end. Never throws for what the executable does. */
export function runPlugin(run: PluginRun): Promise<PluginAnswer> {
  const variables: Record<string, string | undefined> = {
    CNI_COMMAND: run.verb,
    CNI_CONTAINERID: run.containerId,
    CNI_NETNS: run.netns,
    CNI_IFNAME: run.ifName,
    CNI_ARGS: run.args,
    CNI_PATH: run.path,
    PATH: process.env["PATH"],
    ...run.env,
  };
  const env = Object.fromEntries(
    Object.entries(variables).filter(([, value]) => value !== undefined),
  );
  const command = [run.program ?? stubPath];
  const [program = "", ...args] = run.node?.wrap(command) ?? command;
  return new Promise((done, broken) => {
    const child = spawn(program, args, {
      env: env as NodeJS.ProcessEnv,
      timeout: (run.seconds ?? 60) * 1000,
    });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.on("error", broken);
    run.signal?.addEventListener("abort", () => child.kill("SIGKILL"), { once: true });
    child.on("close", (status) => done({ status, stdout, stderr, json: parse(stdout) }));
    // A child that ends without reading its stdin is its own business.
    child.stdin.on("error", () => undefined).end(body(run.config));
  });
}

/** As runPlugin, and throws with the error that the executable printed unless it succeeded. Gives its JSON. */
export async function mustRunPlugin(run: PluginRun): Promise<PluginAnswer["json"]> {
  const answer = await runPlugin(run);
  if (answer.status !== 0) {
    throw new Error(
      `${run.program ?? stubPath} ${run.verb}: exit ${answer.status}: ${answer.stdout}${answer.stderr}`,
    );
  }
  return answer.json;
}

function body(config: unknown): string | Uint8Array {
  if (config === undefined) return "";
  return typeof config === "string" || config instanceof Uint8Array
    ? config
    : JSON.stringify(config);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
