import { deadline } from "../../lib/base/deadlines.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { NodeContext } from "./context.ts";
import { networkSteps } from "./network-calls.ts";
import { defaultConflist } from "./resolve.ts";

/** STATUS answers within a second, whatever it waits for. */
const longest = 900;

/**
 * STATUS: this daemon is there (it answers), and the default network could attach now. Secondary networks are not asked, so that
 * a broken one can't make the node NotReady. Rejects with code 50, or what the default network's own plugin says.
 */
export async function status(node: NodeContext, signal: AbortSignal): Promise<void> {
  const conflist = await defaultConflist(node.networks);
  if (conflist === undefined) {
    if (!node.config.requireDefaultPodNetwork) return;
    throw new CniError(
      cniCode.pluginNotAvailable,
      'default network: PodNetwork "default" not found, create it or set requireDefaultPodNetwork: false',
    );
  }
  using limit = deadline(longest, `status of network "${conflist.name}"`, [signal]);
  for (const { plugin, ipam, call } of networkSteps(node, conflist, limit)) {
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
