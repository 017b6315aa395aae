import { errorText } from "../../lib/base/errors.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError } from "../../lib/cni/errors.ts";
import { findPlugin } from "../../lib/cni/find-plugin.ts";
import type { PluginFinder } from "./context.ts";
import type { Plan, PlannedAttachment } from "./plan.ts";

/**
 * Rejects with a CniError that names network and type when an executable that the plan needs is not there: before anything is
 * done, so that undoing never needs what is missing.
 */
export async function requireExecutables(
  plugins: PluginFinder,
  plan: Plan,
  cniPath: readonly string[],
): Promise<void> {
  for (const attachment of plan.attachments) {
    for (const type of executablesOf(plugins, decodeConflist(attachment.conflist))) {
      await requireExecutable(attachment, type, cniPath);
    }
  }
}

/** As `requireExecutables`, for a network without attachments. */
export async function requireConflistExecutables(
  plugins: PluginFinder,
  conflist: Conflist,
  cniPath: readonly string[],
): Promise<void> {
  for (const type of executablesOf(plugins, conflist)) await findPlugin(type, cniPath);
}

/** The types of a network whose executables are not there, each with why. */
export async function missingExecutables(
  plugins: PluginFinder,
  conflist: Conflist,
  cniPath: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const missing = new Map<string, string>();
  for (const type of executablesOf(plugins, conflist)) {
    try {
      await findPlugin(type, cniPath);
    } catch (error) {
      missing.set(type, errorText(error));
    }
  }
  return missing;
}

function executablesOf(plugins: PluginFinder, conflist: Conflist): string[] {
  return conflist.plugins.flatMap(({ type, ipam }) => {
    const needed = plugins.plugin(type, []).executable ? [type] : [];
    const ipamType = ipam?.type ?? "";
    if (ipamType !== "" && plugins.ipam(ipamType, []).executable) needed.push(ipamType);
    return needed;
  });
}

async function requireExecutable(
  { network, ifName }: PlannedAttachment,
  type: string,
  cniPath: readonly string[],
): Promise<void> {
  try {
    await findPlugin(type, cniPath);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    const message = `attach network "${network}" (${ifName}): ${error.message}`;
    throw new CniError(error.code, message, { cause: error });
  }
}
