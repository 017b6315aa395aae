import { readFileSync } from "node:fs";
import { errorCode, errorText } from "../../lib/base/errors.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { PluginCall, Sandbox } from "./plugin.ts";
import { asCniError } from "./shared/errors.ts";
import { readSysctl, type Sysctl } from "./shared/sysctl.ts";

/** Where a node's admin lists the sysctls that `tuning` may set: one regular expression a line. Without the file every sysctl of the network may be set. */
export const allowlistPath = "/etc/cni/tuning/allowlist.conf";

/**
 * The path of a key below /proc/sys. Keys have dots between their parts, or slashes when an interface's name has dots; IFNAME stands for the
 * attachment's interface. Throws a CniError (code 7) for a key outside of `net`.
 */
export function sysctlPath(call: PluginCall, key: string): string {
  const firstSeparator = /[./]/.exec(key)?.[0];
  const swapped =
    firstSeparator === "/"
      ? key
      : key.replace(/[./]/g, (separator) => (separator === "." ? "/" : "."));
  const path = swapped.replaceAll("IFNAME", call.ifName);
  const parts = path.split("/");
  if (parts[0] === "net" && parts.length > 1 && !parts.some((part) => /^\.{0,2}$/.test(part)))
    return path;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `decode tuning configuration of network "${call.network}": sysctl.${key}: only keys of "net" belong to a pod's network namespace`,
  );
}

/** Throws a CniError (code 7) that names the keys which the node's list does not have; without a list every key of the network is allowed. */
export function requireAllowed(call: PluginCall, keys: readonly string[], allowlist: string): void {
  if (keys.length === 0) return;
  const patterns = readAllowlist(allowlist);
  const refused = keys.filter((key) => patterns?.some((pattern) => pattern.test(key)) === false);
  if (refused.length === 0) return;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `set sysctl "${refused.join('", "')}" of network "${call.network}": not in the node's list "${allowlist}"`,
  );
}

/** undefined: the node has no list. Throws a CniError (code 7) for a pattern that is none, code 5 for a file that can't be read. */
function readAllowlist(path: string): RegExp[] | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw asCniError(error, cniCode.ioFailure, `read the list of allowed sysctls "${path}"`);
  }
  const lines = text.split("\n").map((line) => line.trim());
  return lines
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => toPattern(path, line));
}

function toPattern(path: string, line: string): RegExp {
  try {
    return new RegExp(line);
  } catch (error) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `read the list of allowed sysctls "${path}": "${line}": ${errorText(error)}`,
      { cause: error },
    );
  }
}

/** Values that the kernel tells in other words than they were written: "80,81" as "80-81", a blank as a tab; "" for what can't be read. */
export function spelledByKernel(
  { netns }: Sandbox,
  sysctls: readonly Sysctl[],
): Readonly<Record<string, string>> {
  const present = sysctls.map(({ path, value }) => ({
    path,
    value,
    now: readSysctl(netns, path) ?? "",
  }));
  return Object.fromEntries(
    present.flatMap(({ path, value, now }) => (now === value.trim() ? [] : [[path, now]])),
  );
}
