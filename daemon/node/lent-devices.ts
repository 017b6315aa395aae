import { errorText } from "../../lib/base/errors.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { giveNames } from "../plugins/devices/owed-names.ts";
import { reclaimDevice } from "../plugins/devices/reclaim.ts";
import type { NodeContext } from "./context.ts";
import type { SandboxRecord } from "./record.ts";

/**
 * Puts right what is kept below /run on the devices that pods have borrowed: somebody may have removed the folder while pods run. Those whose ADD was finished come
 * first. Names that devices are owed are given back, too. Never rejects: what can't be put right is logged, and each DEL works from its own record.
 */
export async function restoreDevices(node: NodeContext): Promise<void> {
  try {
    const isBehind = ({ phase }: SandboxRecord): number => Number(phase !== "attached");
    const records = node.store
      .all()
      .filter(({ bootId }) => bootId === node.bootId)
      .toSorted((left, right) => isBehind(left) - isBehind(right));
    for (const record of records) reclaimOf(node, record);
    await giveNames(node.host, node.log);
  } catch (error) {
    node.log.warn({ fault: errorText(error) }, "claims on devices can't be put right");
  }
}

function reclaimOf(node: NodeContext, { containerId, attachments }: SandboxRecord): void {
  for (const { ifName, conflist, states } of attachments) {
    for (const state of Object.values(states)) {
      const network = decodeConflist(conflist).name;
      if (!reclaimDevice(state, { network, containerId, ifName })) continue;
      node.log.warn({ containerId, network, ifName }, "claim on a device was lost, made again");
    }
  }
}
