import { requiredVariables } from "../../lib/cni/environment.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import {
  identifierRule,
  interfaceNameRule,
  isCniIdentifier,
  isInterfaceName,
} from "../../lib/cni/names.ts";
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
  const demand = (name: string, isGood: (value: string) => boolean, rule: string): void => {
    const value = read(name) ?? "";
    if (!isGood(value)) faults.push(`${name} ${JSON.stringify(value)}: ${rule}`);
  };
  for (const name of forwardedVariables) {
    if (name.startsWith("CNI_")) demand(name, isText, "not valid UTF-8");
  }
  if (requiredVariables[verb].includes("CNI_CONTAINERID")) {
    demand("CNI_CONTAINERID", isCniIdentifier, identifierRule);
    demand("CNI_IFNAME", isInterfaceName, interfaceNameRule);
  }
  return faults;
}

/** Hosts give U+FFFD for bytes that are not UTF-8; such a path or id could not be passed on unchanged. */
function isText(value: string): boolean {
  return !value.includes("\ufffd");
}
