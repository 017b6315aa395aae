import type { JsonObject } from "../base/json.ts";
import { requiredVariables } from "./environment.ts";
import { CniError, cniCode } from "./errors.ts";
import { parseJsonObject } from "./json-text.ts";
import { identifierRule, interfaceNameRule, isCniIdentifier, isInterfaceName } from "./names.ts";
import { type CniVerb, type CniVersion, cniVerbs, cniVersions, newestCniVersion } from "./types.ts";
import { impliedCniVersion, isSupportedVersion, verbAllowed, verbSince } from "./versions.ts";

/** What every call has, whatever its verb. */
interface RequestBase {
  /** CNI_ARGS; empty when not given. */
  readonly args: ReadonlyMap<string, string>;
  readonly ignoreUnknown: boolean;
  /** The directories of CNI_PATH, in order. */
  readonly cniPath: readonly string[];
  /** CNI_NETNS_OVERRIDE: the sandbox's namespace may be the plugin's own. */
  readonly netnsOverride: boolean;
  /** W3C trace context of the caller. */
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  readonly config: JsonObject;
  /** The configuration as it came, byte for byte as far as it is valid UTF-8. */
  readonly configText: string;
  /** `name` of the configuration; empty for VERSION without a configuration. */
  readonly networkName: string;
  readonly cniVersion: CniVersion;
}

/** ADD and CHECK: an attachment whose sandbox exists. */
interface SandboxTarget {
  readonly verb: "ADD" | "CHECK";
  readonly containerId: string;
  readonly ifName: string;
  readonly netnsPath: string;
}

/** DEL: an attachment whose sandbox may be gone or was never named. */
interface DelTarget {
  readonly verb: "DEL";
  readonly containerId: string;
  readonly ifName: string;
  readonly netnsPath: string | undefined;
}

/** Calls that concern no attachment. */
interface NetworkTarget {
  readonly verb: "STATUS" | "GC" | "VERSION";
  readonly containerId: undefined;
  readonly ifName: undefined;
  readonly netnsPath: undefined;
}

export type SandboxRequest = RequestBase & SandboxTarget;
export type DelRequest = RequestBase & DelTarget;
export type NetworkRequest = RequestBase & NetworkTarget;

/** A CNI call, decoded and checked; `verb` tells which of the three. */
export type CniRequest = SandboxRequest | DelRequest | NetworkRequest;

/** The environment of a call: only variables that are set. */
export type CniEnvironment = Readonly<Record<string, string | undefined>>;

/**
 * Decodes a call from its environment and the text of stdin. Throws a CniError: code 4 (environment), 6 (text is not a JSON
 * object), 7 (network name), 1 (version not spoken, or too old for the verb).
 */
export function decodeRequest(env: CniEnvironment, configText: string): CniRequest {
  const verb = decodeVerb(env["CNI_COMMAND"]);
  requireVariables(verb, env);
  const target = decodeTarget(verb, env);
  const args = decodeCniArgs(env["CNI_ARGS"] ?? "");
  const ignoreUnknown = ignoresUnknown(args);
  const config = decodeConfigText(verb, configText);
  return {
    ...target,
    args,
    ignoreUnknown,
    cniPath: (env["CNI_PATH"] ?? "").split(":").filter((dir) => dir !== ""),
    netnsOverride: decodeFlag(env["CNI_NETNS_OVERRIDE"] ?? "") ?? false,
    traceparent: nonEmpty(env["TRACEPARENT"]),
    tracestate: nonEmpty(env["TRACESTATE"]),
    config,
    configText,
    networkName: decodeNetworkName(verb, config),
    cniVersion: decodeConfigVersion(verb, config),
  };
}

/**
 * The version that an answer to this configuration carries when the configuration itself may be what is wrong: its own
 * `cniVersion` if it is one that podnet speaks, else the newest. Never throws.
 */
export function answerVersion(configText: string): CniVersion {
  try {
    const version = parseJsonObject(configText, "network configuration")["cniVersion"];
    if (typeof version === "string" && isSupportedVersion(version)) return version;
  } catch {
    // The caller reports what is wrong with the text; here only the version of that report is at stake.
  }
  return newestCniVersion;
}

function decodeVerb(command: string | undefined): CniVerb {
  if (command === undefined || command === "") {
    throw badEnvironment("required env variables [CNI_COMMAND] missing");
  }
  const verb = cniVerbs.find((known) => known === command);
  if (verb !== undefined) return verb;
  throw badEnvironment(`unknown CNI_COMMAND "${command}": must be one of ${cniVerbs.join(", ")}`);
}

function requireVariables(verb: CniVerb, env: CniEnvironment): void {
  const missing = requiredVariables[verb].filter((name) => nonEmpty(env[name]) === undefined);
  if (missing.length > 0) {
    throw badEnvironment(`required env variables [${missing.join(",")}] missing`);
  }
}

function decodeConfigText(verb: CniVerb, text: string): JsonObject {
  if (verb === "VERSION" && text.trim() === "") return {};
  return parseJsonObject(text, "network configuration");
}

function decodeNetworkName(verb: CniVerb, config: JsonObject): string {
  const name = config["name"];
  if (verb === "VERSION" && name === undefined) return "";
  if (name === undefined || name === "") {
    throw new CniError(cniCode.invalidNetworkConfig, "network configuration: name: missing");
  }
  if (typeof name === "string" && isCniIdentifier(name)) return name;
  const message = `network configuration: name: ${JSON.stringify(name)} ${identifierRule}`;
  throw new CniError(cniCode.invalidNetworkConfig, message);
}

function decodeConfigVersion(verb: CniVerb, config: JsonObject): CniVersion {
  const given = config["cniVersion"] ?? "";
  // VERSION asks which versions there are; the one that the caller happens to name is no reason to refuse.
  if (verb === "VERSION") return isVersionText(given) ? given : newestCniVersion;
  const version = given === "" ? impliedCniVersion : given;
  if (typeof version !== "string") {
    const message = `network configuration: cniVersion: ${JSON.stringify(version)} must be a text`;
    throw new CniError(cniCode.decodingFailure, message);
  }
  if (!isVersionText(version)) {
    const message = `network configuration: cniVersion: "${version}" is none of ${cniVersions.join(", ")}`;
    throw new CniError(cniCode.incompatibleVersion, message);
  }
  if (verbAllowed(verb, version)) return version;
  const message = `network configuration: cniVersion: "${version}" has no ${verb}, which needs ${verbSince[verb]} or newer`;
  throw new CniError(cniCode.incompatibleVersion, message);
}

function isVersionText(value: unknown): value is CniVersion {
  return typeof value === "string" && isSupportedVersion(value);
}

/** Whom the call is for. */
function decodeTarget(
  verb: CniVerb,
  env: CniEnvironment,
): SandboxTarget | DelTarget | NetworkTarget {
  if (verb === "STATUS" || verb === "GC" || verb === "VERSION") {
    return { verb, containerId: undefined, ifName: undefined, netnsPath: undefined };
  }
  const containerId = decodeContainerId(env["CNI_CONTAINERID"] ?? "");
  const ifName = decodeIfName(env["CNI_IFNAME"] ?? "");
  const netnsPath = nonEmpty(env["CNI_NETNS"]);
  if (verb === "DEL") return { verb, containerId, ifName, netnsPath };
  return { verb, containerId, ifName, netnsPath: netnsPath ?? "" };
}

function decodeContainerId(text: string): string {
  if (isCniIdentifier(text)) return text;
  throw badEnvironment(`CNI_CONTAINERID "${text}": ${identifierRule}`);
}

function decodeIfName(text: string): string {
  if (isInterfaceName(text)) return text;
  throw badEnvironment(`CNI_IFNAME "${text}": ${interfaceNameRule}`);
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === "" ? undefined : text;
}

function badEnvironment(message: string): CniError {
  return new CniError(cniCode.invalidEnvironment, message);
}

/**
 * Decodes CNI_ARGS, `K=V;K2=V2`. The value goes up to the next semicolon and may contain `=`; of a key given twice the last counts.
 * Throws a CniError (code 4) for a piece without `=` or without a key.
 */
export function decodeCniArgs(text: string): ReadonlyMap<string, string> {
  const args = new Map<string, string>();
  if (text === "") return args;
  for (const piece of text.split(";")) {
    const equals = piece.indexOf("=");
    if (equals <= 0) {
      const message = `decode CNI_ARGS: "${piece}" must be KEY=VALUE, with ";" between pairs`;
      throw new CniError(cniCode.invalidEnvironment, message);
    }
    args.set(piece.slice(0, equals), piece.slice(equals + 1));
  }
  return args;
}

/** Writes CNI_ARGS. */
export function encodeCniArgs(args: ReadonlyMap<string, string>): string {
  return [...args].map(([key, value]) => `${key}=${value}`).join(";");
}

/** The argument IgnoreUnknown. Throws a CniError (code 4) when it is neither 1/true nor 0/false. */
function ignoresUnknown(args: ReadonlyMap<string, string>): boolean {
  const value = args.get("IgnoreUnknown") ?? "false";
  const flag = decodeFlag(value);
  if (flag !== undefined) return flag;
  const message = `decode CNI_ARGS: IgnoreUnknown "${value}" must be 1, true, 0 or false`;
  throw new CniError(cniCode.invalidEnvironment, message);
}

/** 1/true and 0/false in any case, undefined for other text: how CNI's environment writes a boolean. */
function decodeFlag(text: string): boolean | undefined {
  switch (text.toLowerCase()) {
    case "1":
    case "true":
      return true;
    case "0":
    case "false":
      return false;
    default:
      return undefined;
  }
}
