import { setTimeout as sleep } from "node:timers/promises";
import { deadline } from "../../lib/base/deadlines.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { NodeContext } from "./context.ts";
import { requireConflistExecutables } from "./executables.ts";
import { networkSteps } from "./network-calls.ts";
import { defaultConflist } from "./resolve.ts";

/** STATUS answers within a second, whatever it waits for. */
const longest = 900;

/**
 * STATUS: this daemon is there (it answers), and the default network could attach now: its executables are in `cniPath`, and its plugins' STATUS succeeds
 * (those of a version without it have nothing more to say). Secondary networks are not asked, so that a broken one can't make the node
 * NotReady. Rejects with code 50, or what the default network's own plugin says.
 */
export async function status(
  node: NodeContext,
  signal: AbortSignal,
  cniPath: readonly string[] = node.config.cniBinDir,
): Promise<void> {
  const conflist = await ownDefault(node);
  if (conflist === undefined) {
    if (!node.config.requireDefaultPodNetwork) return;
    throw new CniError(
      cniCode.pluginNotAvailable,
      'default network: PodNetwork "default" not found, create it or set requireDefaultPodNetwork: false',
    );
  }
  await requireDefaultExecutables(node, conflist, cniPath);
  using limit = deadline(longest, `status of network "${conflist.name}"`, [signal]);
  for (const { plugin, ipam, call } of networkSteps(node, conflist, { signal: limit, cniPath })) {
    try {
      await plugin.status?.(call);
      await ipam?.status?.(call);
    } catch (error) {
      if (error instanceof CniError) throw error;
      const text = error instanceof Error ? error.message : String(error);
      throw new CniError(cniCode.pluginNotAvailable, `default network: ${text}`, { cause: error });
    }
  }
}

/** At a boot they come late, with the agent of the default network. */
async function requireDefaultExecutables(
  node: NodeContext,
  conflist: Conflist,
  cniPath: readonly string[],
): Promise<void> {
  try {
    await requireConflistExecutables(node.plugins, conflist, cniPath);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, `default network: ${error.message}`, { cause: error });
  }
}

/** An API server that is away is said to be the missing part, within the second that STATUS has. */
async function ownDefault(node: NodeContext): Promise<Conflist | undefined> {
  const late = new AbortController();
  const timer = sleep(longest, "late", { signal: late.signal }).catch(() => "late");
  try {
    const found = await Promise.race([defaultConflist(node.networks), timer]);
    if (typeof found !== "string") return found;
    throw unavailable(`default network: no answer from the API server within ${longest} ms`);
  } catch (error) {
    if (error instanceof CniError && error.code === cniCode.tryAgainLater) {
      throw unavailable(`default network: ${error.message}`, error);
    }
    throw error;
  } finally {
    late.abort();
  }
}

function unavailable(message: string, cause?: unknown): CniError {
  return new CniError(cniCode.pluginNotAvailable, message, { cause });
}
