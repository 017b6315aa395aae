import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type CniVerb, cniVerbs } from "../../lib/cni/types.ts";

/** The variables that go to the daemon: the protocol's own and the trace context (W3C Trace Context, as environment). */
export const forwardedVariables = [
  "CNI_COMMAND",
  "CNI_CONTAINERID",
  "CNI_NETNS",
  "CNI_IFNAME",
  "CNI_ARGS",
  "CNI_PATH",
  "CNI_NETNS_OVERRIDE",
  "TRACEPARENT",
  "TRACESTATE",
] as const;

/** Reads one environment variable. */
export type ReadVariable = (name: string) => string | undefined;

/** CNI 1.1.0, section 2. CNI_PATH is optional there for every verb but GC; the Go library asks for it everywhere. */
const requiredVariables: { readonly [verb in CniVerb]: readonly string[] } = {
  ADD: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
  CHECK: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
  DEL: ["CNI_CONTAINERID", "CNI_IFNAME"],
  GC: ["CNI_PATH"],
  STATUS: [],
  VERSION: [],
};

/** The verb that CNI_COMMAND names. Throws code 4 for any other. */
export function readVerb(read: ReadVariable): CniVerb {
  const command = read("CNI_COMMAND") ?? "";
  const verb = cniVerbs.find((known) => known === command);
  if (verb !== undefined) return verb;
  throw new CniError(
    cniCode.invalidEnvironment,
    `read CNI_COMMAND ${JSON.stringify(command)}: unknown command, must be one of ${cniVerbs.join(", ")}`,
  );
}

/**
 * The variables that go to the daemon, checked for what the verb needs. Throws code 4 that names every variable that is
 * missing or else every one that is malformed, and code 7 where podnetd itself started this process.
 */
export function readEnvironment(read: ReadVariable, verb: CniVerb): Record<string, string> {
  refuseDelegation(read);
  const missing = requiredVariables[verb].filter((name) => !read(name));
  if (missing.length > 0) {
    throw new CniError(
      cniCode.invalidEnvironment,
      `start ${verb}: required environment variables missing: ${missing.join(", ")}`,
    );
  }
  const faults = findFaults(read, verb);
  if (faults.length > 0) {
    throw new CniError(cniCode.invalidEnvironment, `start ${verb}: ${faults.join("; ")}`);
  }
  return collect(read);
}

/** podnetd sets PODNET_DELEGATE for every executable it starts; one that is podnet again would go round for ever. */
function refuseDelegation(read: ReadVariable): void {
  if (!read("PODNET_DELEGATE")) return;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    'start podnet as a delegate: podnet is configured to delegate to itself: take type "podnet" out of the network\'s own plugins',
  );
}

function collect(read: ReadVariable): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of forwardedVariables) {
    const value = read(name);
    if (value !== undefined && (name.startsWith("CNI_") || isText(value))) found[name] = value;
  }
  return found;
}

function findFaults(read: ReadVariable, verb: CniVerb): string[] {
  const faults: string[] = [];
  const note = (name: string, reason: string | undefined): void => {
    const value = read(name);
    if (reason !== undefined) faults.push(`${name} ${JSON.stringify(value)}: ${reason}`);
  };
  for (const name of forwardedVariables) {
    const value = read(name) ?? "";
    if (name.startsWith("CNI_") && !isText(value)) note(name, "not valid UTF-8");
  }
  if (requiredVariables[verb].includes("CNI_CONTAINERID")) {
    note("CNI_CONTAINERID", identifierFault(read("CNI_CONTAINERID") ?? ""));
    note("CNI_IFNAME", interfaceNameFault(read("CNI_IFNAME") ?? ""));
  }
  return faults;
}

/** Hosts give U+FFFD for bytes that are not UTF-8; such a path or id could not be passed on unchanged. */
function isText(value: string): boolean {
  return !value.includes("\ufffd");
}

/** What is wrong with a container id or network name (CNI 1.1.0: a letter or digit, then letters, digits, `_.-`). */
export function identifierFault(value: string): string | undefined {
  if (/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(value)) return undefined;
  return "must start with a letter or digit and have only letters, digits, '_', '.', '-'";
}

/** What is wrong with an interface name (Linux: dev_valid_name in net/core/dev.c). The limit is 15 bytes. */
export function interfaceNameFault(value: string): string | undefined {
  if (utf8Length(value) > 15) return "longer than 15 bytes";
  if (value === "." || value === "..") return "not a name that Linux allows";
  if (/[/:\s\0]/.test(value)) return "must not have '/', ':' or white space";
  return undefined;
}

function utf8Length(text: string): number {
  let length = 0;
  for (const character of text) {
    const point = character.codePointAt(0) ?? 0;
    length += point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  }
  return length;
}
