import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, errorText } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import { failureOf, type InvocationOutcome, startFailure } from "./delegate-answer.ts";
import { findPlugin } from "./find-plugin.ts";
import { encodeCniArgs } from "./request.ts";
import type { CniVerb } from "./types.ts";

/** The static program that starts a delegate where Node's own spawn can't: `podnet --run-delegate`. */
export interface DelegateHelper {
  readonly path: string;
  /** The `cgroup.procs` that the delegate joins before it runs. */
  readonly cgroupProcs?: string | undefined;
  /** The mount namespace that the delegate runs in. */
  readonly mntns?: string | undefined;
}

/** One call of one plugin executable. */
export interface Invocation {
  readonly verb: CniVerb;
  readonly type: string;
  readonly cniPath: readonly string[];
  /** Goes to stdin. */
  readonly config: JsonObject;
  readonly containerId?: string | undefined;
  readonly netnsPath?: string | undefined;
  readonly ifName?: string | undefined;
  readonly args?: ReadonlyMap<string, string>;
  /** More of the environment, such as TRACEPARENT. */
  readonly env?: Readonly<Record<string, string>>;
  readonly helper?: DelegateHelper | undefined;
  readonly limits?: Partial<InvocationLimits>;
  /** Ends the call; the promise settles once the plugin is gone. */
  readonly signal: AbortSignal;
}

export interface InvocationLimits {
  /** Milliseconds until the plugin is told to end. */
  readonly timeout: number;
  /** Milliseconds between TERM and KILL. */
  readonly grace: number;
  /** Bytes of stdout. */
  readonly output: number;
}

/** What a plugin wrote that succeeded. */
export interface InvocationOutput {
  readonly stdout: string;
  /** The end of what it wrote for people. */
  readonly stderr: string;
}

const defaultLimits: InvocationLimits = { timeout: 120_000, grace: 2_000, output: 1 << 20 };
/** Characters of stderr that are kept. */
const stderrTail = 4096;
/** Milliseconds that a pipe may stay open after the plugin itself has ended: then somebody else holds it. */
const drain = 1_000;
/** Milliseconds between attempts while the executable is being written ("text file busy"). */
const busyPauses = [20, 60, 150, 400, 1_000];

/**
 * Runs a plugin with the CNI protocol and returns what it wrote. It gets this process' environment with CNI_* replaced and
 * PODNET_DELEGATE=1, and a process group of its own, which does not outlive the call. Rejects with a CniError: the plugin's own
 * (code and details kept, its type before the message), or code 107 for one that was killed, took too long, wrote too much or wrote no JSON.
 */
export async function invokePlugin(invocation: Invocation): Promise<InvocationOutput> {
  const program = await findPlugin(invocation.type, invocation.cniPath);
  for (const pause of busyPauses) {
    const outcome = await run(program, invocation);
    if (!isBusy(outcome)) return settled(invocation, outcome);
    await delay(pause, undefined, { signal: invocation.signal }).catch(() => undefined);
  }
  return settled(invocation, await run(program, invocation));
}

function settled(invocation: Invocation, outcome: InvocationOutcome): InvocationOutput {
  if (outcome.exitCode === 0 && outcome.stopped === undefined) return outcome;
  throw failureOf(invocation, outcome);
}

/** ETXTBSY: somebody is still writing the executable. The helper can only say so in words (strerror, C locale) and 126. */
function isBusy(outcome: InvocationOutcome): boolean {
  if (outcome.startError !== undefined) return errorCode(outcome.startError) === "ETXTBSY";
  return outcome.exitCode === 126 && /text file busy/i.test(outcome.stderr);
}

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

async function run(program: string, invocation: Invocation): Promise<InvocationOutcome> {
  if (invocation.signal.aborted) return startFailure(invocation.signal.reason);
  const limits = { ...defaultLimits, ...invocation.limits };
  try {
    const child = start(program, invocation);
    using stopper = new Stopper(child, limits, invocation.signal);
    const stdout = collectStdout(child, limits.output, stopper);
    const stderr = collectStderr(child);
    const exitCode = await feedAndWait(child, JSON.stringify(invocation.config));
    return {
      exitCode,
      killedBy: child.signalCode ?? undefined,
      stdout: stdout(),
      stderr: stderr(),
      stopped: stopper.reason,
      startError: undefined,
    };
  } catch (error) {
    return startFailure(error);
  }
}

function start(program: string, { helper, ...invocation }: Invocation): Child {
  const [file, ...args] = helper === undefined ? [program] : helperCommand(helper, program);
  return spawn(file, args, {
    cwd: "/",
    detached: true, // A session and process group of its own, to be ended as a whole.
    env: environmentOf(invocation),
    stdio: ["pipe", "pipe", "pipe"],
  });
}

function helperCommand(helper: DelegateHelper, program: string): [string, ...string[]] {
  const { path, cgroupProcs = "-", mntns = "-" } = helper;
  return [path, "--run-delegate", "--cgroup", cgroupProcs, "--mntns", mntns, "--", program];
}

function environmentOf(invocation: Omit<Invocation, "helper">): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("CNI_"));
  const { containerId, netnsPath = "", ifName, args = new Map() } = invocation;
  const attachment =
    containerId === undefined
      ? {}
      : {
          CNI_CONTAINERID: containerId,
          CNI_NETNS: netnsPath,
          CNI_IFNAME: ifName ?? "",
          CNI_ARGS: encodeCniArgs(args),
        };
  return {
    ...Object.fromEntries(inherited),
    ...invocation.env,
    ...attachment,
    CNI_COMMAND: invocation.verb,
    CNI_PATH: invocation.cniPath.join(":"),
    PODNET_DELEGATE: "1",
  };
}

/** Resolves with the exit status (null when killed) once the plugin has ended and its output is read. */
async function feedAndWait(child: Child, stdin: string): Promise<number | null> {
  // A plugin need not read its configuration (EPIPE); whatever goes wrong here shows in its answer.
  child.stdin.on("error", () => undefined);
  child.stdin.end(stdin);
  const closed = once(child, "close").catch(() => undefined);
  await once(child, "exit");
  // Before anything else can get the number: what the plugin left behind in its group ends with it.
  signalGroup(child, "SIGKILL");
  await Promise.race([closed, delay(drain, undefined, { ref: false })]);
  child.stdout.destroy();
  child.stderr.destroy();
  return child.exitCode;
}

function collectStdout(child: Child, limit: number, stopper: Stopper): () => string {
  const chunks: Buffer[] = [];
  let size = 0;
  child.stdout.on("data", (chunk: Buffer) => {
    size += chunk.length;
    if (size <= limit) chunks.push(chunk);
    else stopper.stop(`wrote more than ${limit} bytes`);
  });
  return () => Buffer.concat(chunks).toString("utf8");
}

function collectStderr(child: Child): () => string {
  let tail = Buffer.alloc(0);
  child.stderr.on("data", (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk]).subarray(-stderrTail);
  });
  return () => tail.toString("utf8").trim();
}

/** Ends a child's process group, first by TERM, then by KILL, when the time is over or the caller gives up. */
class Stopper {
  /** Why the plugin was told to end; undefined when it was not. */
  reason: string | undefined;
  readonly #child: Child;
  readonly #limits: InvocationLimits;
  readonly #signal: AbortSignal;
  #timer: NodeJS.Timeout;

  constructor(child: Child, limits: InvocationLimits, signal: AbortSignal) {
    this.#child = child;
    this.#limits = limits;
    this.#signal = signal;
    const late = () => this.stop(`gave no answer within ${limits.timeout} ms`);
    this.#timer = setTimeout(late, limits.timeout);
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** Only the first reason counts. */
  stop(reason: string): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    clearTimeout(this.#timer);
    signalGroup(this.#child, "SIGTERM");
    this.#timer = setTimeout(() => signalGroup(this.#child, "SIGKILL"), this.#limits.grace);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#signal.removeEventListener("abort", this.#onAbort);
  }

  readonly #onAbort = (): void => this.stop(`was ended: ${errorText(this.#signal.reason)}`);
}

function signalGroup(child: Child, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    // ESRCH: nobody is left in the group.
    if (errorCode(error) !== "ESRCH") throw error;
  }
}
