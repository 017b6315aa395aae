import { isJsonObject, type JsonObject } from "../../lib/base/json.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { identifierRule, isCniIdentifier } from "../../lib/cni/names.ts";
import { type CniVerb, type CniVersion, cniVersions } from "../../lib/cni/types.ts";
import {
  impliedCniVersion,
  isSupportedVersion,
  verbAllowed,
  verbSince,
} from "../../lib/cni/versions.ts";

/** What the stub itself reads of the plugin configuration. Times in seconds. */
export interface Settings {
  readonly cniVersion: CniVersion;
  readonly daemonSocket: string;
  readonly daemonWait: number;
  /** Of DEL, in place of daemonWait. */
  readonly daemonWaitDel: number;
  readonly daemonTimeout: number;
}

const defaultSocket = "/run/podnet/podnetd.sock";
const defaultWait = 30;
/** What remains for the work itself when the daemon came back at the last moment: 120 s in all with the default wait. */
const defaultWork = 90;
const longestTime = 3600;
/** sun_path of sockaddr_un (108 bytes, unix(7)) less the closing zero. */
const longestSocketPath = 107;

/** The plugin configuration as an object. Throws code 6 when the text is not a JSON object. */
export function parseConfiguration(text: string): JsonObject {
  if (text.trim() === "") throw decodingError("it is empty");
  const value = parseJson(text);
  if (isJsonObject(value)) return value;
  throw decodingError("it must be a JSON object");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw decodingError("it is not JSON", error);
  }
}

function decodingError(reason: string, cause?: unknown): CniError {
  const message = `decode the network configuration on stdin: ${reason}`;
  if (!(cause instanceof Error)) return new CniError(cniCode.decodingFailure, message);
  return new CniError(cniCode.decodingFailure, message, { details: cause.message, cause });
}

/**
 * Reads and checks the keys that the stub itself needs; all others are the daemon's. Throws code 6 or 1 for `cniVersion`,
 * code 7 with every fault of the other keys.
 */
export function readSettings(configuration: JsonObject, verb: CniVerb): Settings {
  const cniVersion = readVersion(configuration["cniVersion"]);
  if (!verbAllowed(verb, cniVersion)) {
    throw new CniError(
      cniCode.incompatibleVersion,
      `run ${verb} with cniVersion "${cniVersion}": the command needs cniVersion ${verbSince[verb]} or newer`,
    );
  }
  const reader = new SettingsReader(configuration);
  reader.checkName();
  const daemonSocket = reader.socket();
  const times = reader.times();
  reader.finish();
  return { cniVersion, daemonSocket, ...times };
}

function readVersion(value: unknown): CniVersion {
  if (value === undefined || value === "") return impliedCniVersion;
  if (typeof value !== "string") {
    throw decodingError(`cniVersion ${shown(value)}: must be a string`);
  }
  if (isSupportedVersion(value)) return value;
  throw new CniError(
    cniCode.incompatibleVersion,
    `use cniVersion ${shown(value)}: not supported, podnet speaks ${cniVersions.join(", ")}`,
  );
}

/** Gathers the faults of all keys, so that one call tells a person everything. */
class SettingsReader {
  readonly #configuration: JsonObject;
  readonly #faults: string[] = [];

  constructor(configuration: JsonObject) {
    this.#configuration = configuration;
  }

  checkName(): void {
    const name = this.#configuration["name"];
    if (name === undefined || name === "") this.#faults.push("name: missing");
    else if (typeof name !== "string") this.#note("name", "must be a string");
    else if (!isCniIdentifier(name)) this.#note("name", identifierRule);
  }

  socket(): string {
    const value = this.#configuration["daemonSocket"] ?? defaultSocket;
    if (typeof value !== "string" || !value.startsWith("/") || value.includes("\0")) {
      this.#note("daemonSocket", "must be an absolute path");
      return defaultSocket;
    }
    // A path has at least as many bytes as UTF-16 units; the kernel's own limit catches the rest.
    if (value.length > longestSocketPath) {
      this.#note("daemonSocket", `must not be longer than ${longestSocketPath} bytes`);
    }
    return value;
  }

  times(): Pick<Settings, "daemonWait" | "daemonWaitDel" | "daemonTimeout"> {
    const wait = this.#seconds("daemonWait", 0);
    const timeout = this.#seconds("daemonTimeout", 0.001);
    if (wait !== undefined && timeout !== undefined && timeout < wait) {
      this.#note("daemonTimeout", `must not be shorter than daemonWait ${wait}`);
    }
    const daemonWait = wait ?? Math.min(defaultWait, timeout ?? defaultWait);
    const waitDel = this.#seconds("daemonWaitDel", 0);
    if (waitDel !== undefined && timeout !== undefined && timeout < waitDel) {
      this.#note("daemonTimeout", `must not be shorter than daemonWaitDel ${waitDel}`);
    }
    const daemonWaitDel = waitDel ?? daemonWait;
    const longest = Math.max(daemonWait, daemonWaitDel);
    return { daemonWait, daemonWaitDel, daemonTimeout: timeout ?? longest + defaultWork };
  }

  finish(): void {
    if (this.#faults.length === 0) return;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `read the network configuration on stdin: ${this.#faults.join("; ")}`,
    );
  }

  #seconds(key: string, least: number): number | undefined {
    const value = this.#configuration[key] ?? undefined;
    if (value === undefined) return undefined;
    if (typeof value === "number" && value >= least && value <= longestTime) return value;
    this.#note(key, `must be a number of seconds, ${least} to ${longestTime}`);
    return undefined;
  }

  #note(key: string, reason: string): void {
    this.#faults.push(`${key} ${shown(this.#configuration[key])}: ${reason}`);
  }
}

/** A value as JSON for a message, cut where it is long. */
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length <= 120 ? text : `${text.slice(0, 120)}...`;
}
