import { isJsonObject, type JsonObject } from "../../lib/base/json.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type CniVerb, cniVersions, newestCniVersion } from "../../lib/cni/types.ts";
import { aboutText } from "./about.ts";
import { parseConfiguration, readSettings, type Settings } from "./configuration.ts";
import { askDaemon } from "./daemon.ts";
import { readEnvironment, readVerb } from "./environment.ts";
import { type Host, hostErrorCode } from "./host.ts";
import { type Answer, concatenate, requestHead, requestLine } from "./wire.ts";

/** The longest network configuration that is taken from stdin, in bytes; the API server's objects end at 1.5 MB. */
const longestInput = 4 * 1024 * 1024;
/** The runtime writes stdin at once; on a node under heavy load "at once" takes a while. */
const inputTime = 30_000;
/** Where stdin only decorates the answer (VERSION, errors in the environment) nobody waits long for it. */
const peekTime = 500;
/** At least this long may stdout take what is printed; the runtime reads it all the time, and a pipe takes an error at once. */
const outputTime = 1000;
/** A runtime asks STATUS often and from its main loop: podnetd answers within a second or counts as unavailable. */
const statusTime = 900;

/** Runs one CNI call from environment and stdin to stdout. Resolves with the exit code; never throws. */
export async function run(host: Host): Promise<number> {
  const input = new Input(host);
  try {
    if (host.args.length > 0) return await runByHand(host);
    if (!host.env("CNI_COMMAND")) return await print(host, 2, aboutText);
    return await serve(host, input);
  } catch (error) {
    return await fail(host, error, await input.version());
  }
}

async function serve(host: Host, input: Input): Promise<number> {
  const read = (name: string): string | undefined => host.env(name);
  const verb = readVerb(read);
  if (verb === "VERSION") return await answerVersion(host, await input.version());
  const env = readEnvironment(read, verb);
  const stdin = await input.read();
  const settings = readSettings(input.configuration(), verb);
  const body = concatenate([host.encode(requestLine(env)), stdin]);
  const request = concatenate([host.encode(requestHead(body.length)), body]);
  const code = unavailableCode(verb);
  const socket = settings.daemonSocket;
  const limits = patience(host, verb, settings);
  const answer = await askDaemon(host, { ...limits, socket, request, code });
  if (answer.status !== 200 && !isCniError(host, answer.body))
    throw foreignError(host, answer, code);
  // As it came, success or error.
  await host.write(1, answer.body, Math.max(limits.until, host.now() + outputTime));
  return answer.status === 200 ? 0 : 1;
}

/** STATUS and GC are repeated by their callers anyway; the others decide over a pod. */
function patience(
  host: Host,
  verb: CniVerb,
  settings: Settings,
): { readonly wait: number; readonly until: number } {
  const until = settings.daemonTimeout * 1000;
  if (verb === "STATUS") return { wait: 0, until: Math.min(until, host.now() + statusTime) };
  const wait = verb === "DEL" ? settings.daemonWaitDel : settings.daemonWait;
  return { wait: verb === "GC" ? 0 : wait * 1000, until };
}

function unavailableCode(verb: CniVerb): number {
  return verb === "STATUS" ? cniCode.pluginNotAvailable : cniCode.tryAgainLater;
}

function foreignError(host: Host, answer: Answer, code: number): CniError {
  const message = `ask podnetd: it answered with HTTP status ${answer.status} and no CNI error`;
  return new CniError(code, message, { details: host.decode(answer.body.subarray(0, 2000)) });
}

function isCniError(host: Host, body: Uint8Array): boolean {
  try {
    const value: unknown = JSON.parse(host.decode(body));
    return (
      isJsonObject(value) && typeof value["code"] === "number" && typeof value["msg"] === "string"
    );
  } catch {
    return false;
  }
}

async function answerVersion(host: Host, given: string | undefined): Promise<number> {
  const answer = { cniVersion: given ?? newestCniVersion, supportedVersions: cniVersions };
  return await print(host, 1, `${JSON.stringify(answer)}\n`);
}

/** A person at a shell: everything that is not CNI. */
async function runByHand(host: Host): Promise<number> {
  const [argument = ""] = host.args;
  if (argument === "--version" || argument === "--help") return await print(host, 1, aboutText);
  const text =
    argument === "--run-delegate"
      ? "podnet: --run-delegate: this package of podnet can't start delegates: use the static binary\n"
      : `podnet: unknown argument ${JSON.stringify(argument)}: try --help\n`;
  await print(host, 2, text);
  return argument === "--run-delegate" ? 126 : 2;
}

async function print(host: Host, target: 1 | 2, text: string): Promise<number> {
  await host.write(target, host.encode(text), host.now() + outputTime);
  return 0;
}

/** Prints an error as CNI wants it (CNI 1.1.0, "Error"): JSON on stdout. Nothing is left to do where that fails. */
async function fail(host: Host, error: unknown, given: string | undefined): Promise<number> {
  const cniVersion = cniVersions.find((known) => known === given) ?? newestCniVersion;
  const known = error instanceof CniError;
  const answer = {
    cniVersion,
    code: known ? error.code : cniCode.internal,
    msg: known
      ? error.message
      : `run podnet: ${error instanceof Error ? error.message : String(error)}`,
    details: known ? error.details : undefined,
  };
  try {
    await print(host, 1, `${JSON.stringify(answer)}\n`);
  } catch {
    // stdout is gone: the exit code still tells.
  }
  return 1;
}

/** stdin, read at most once. */
class Input {
  readonly #host: Host;
  #bytes: Uint8Array | undefined;
  #configuration: JsonObject | undefined;
  #consumed = false;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Throws code 5 when stdin can't be read to its end. */
  async read(): Promise<Uint8Array> {
    this.#consumed = true;
    try {
      this.#bytes = await this.#host.readStdin(longestInput, this.#host.now() + inputTime);
      return this.#bytes;
    } catch (error) {
      throw inputError(error);
    }
  }

  /** The configuration that was read. Throws code 6. */
  configuration(): JsonObject {
    this.#configuration ??= parseConfiguration(this.#host.decode(this.#bytes ?? new Uint8Array(0)));
    return this.#configuration;
  }

  /** The cniVersion that came in, if one did; never throws, waits a moment at most. */
  async version(): Promise<string | undefined> {
    try {
      if (!this.#consumed) {
        this.#consumed = true;
        this.#bytes = await this.#host.readStdin(longestInput, this.#host.now() + peekTime);
      }
      const version = this.configuration()["cniVersion"];
      return typeof version === "string" && version !== "" ? version : undefined;
    } catch {
      return undefined;
    }
  }
}

function inputError(cause: unknown): CniError {
  const code = hostErrorCode(cause);
  let reason = code ?? "failed";
  if (code === "ETIMEDOUT") reason = `it did not end within ${inputTime / 1000} s`;
  if (code === "EMSGSIZE") reason = `it is longer than ${longestInput} bytes`;
  const message = `read the network configuration from stdin: ${reason}`;
  return new CniError(cniCode.ioFailure, message, { cause });
}
