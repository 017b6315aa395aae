import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { SandboxRequest } from "../../../lib/cni/request.ts";
import type { NodeContext } from "../context.ts";
import type { PlannedAttachment } from "../plan.ts";
import { podOf } from "../pods.ts";
import type { Devices } from "./assign.ts";

const none: Devices = new Map();

/**
 * The devices of a request's pod, of those resources that its attachments need. Nobody is asked, and nothing is loaded, where none does.
 * Changes nothing. Rejects with code 4 (the request names no pod) or 11 (kubelet or API server can't be asked).
 */
export async function devicesOfPod(
  node: NodeContext,
  request: SandboxRequest,
  {
    attachments,
    signal,
  }: {
    readonly attachments: readonly PlannedAttachment[];
    readonly signal: AbortSignal;
  },
): Promise<Devices> {
  const needs = needsOf(attachments);
  const [resource] = needs.keys();
  if (resource === undefined) return none;
  const { namespace, name, uid } = podOf(request.args);
  if (namespace === undefined || name === undefined) {
    const message = `attach a device of resource "${resource}": CNI_ARGS name no pod (K8S_POD_NAMESPACE, K8S_POD_NAME), so nobody knows which it was given`;
    throw new CniError(cniCode.invalidEnvironment, message);
  }
  const { findDevices } = await import("./find.ts");
  return await findDevices(node, { pod: { namespace, name, uid }, needs, signal });
}

/** How many devices of each resource are needed. */
function needsOf(attachments: readonly PlannedAttachment[]): ReadonlyMap<string, number> {
  const needs = new Map<string, number>();
  for (const { resourceName } of attachments) {
    if (resourceName !== undefined) needs.set(resourceName, (needs.get(resourceName) ?? 0) + 1);
  }
  return needs;
}
