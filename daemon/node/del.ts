import type { Conflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type DelRequest, encodeCniArgs } from "../../lib/cni/request.ts";
import { detach } from "./attachment.ts";
import type { NodeContext } from "./context.ts";
import { podOf } from "./pods.ts";
import type { AttachmentRecord, SandboxRecord } from "./record.ts";
import { defaultConflist } from "./resolve.ts";
import { reopenSandbox } from "./sandbox.ts";
import { giveBack } from "./undo.ts";

/**
 * DEL: gives back all networks of one sandbox, from the record alone. Idempotent; succeeds for what is gone; an error means that
 * something is left, which the daemon also keeps trying to give back. The caller holds the locks of the container and its pod.
 */
export async function del(
  node: NodeContext,
  request: DelRequest,
  signal: AbortSignal,
): Promise<void> {
  const record = node.store.get(request);
  if (record === undefined) {
    await delUnknown(node, request, signal);
    return;
  }
  using sandbox = reopenSandbox(node.bootId, record, request.netnsPath);
  await giveBack({ node, record, sandbox, signal });
}

/**
 * A sandbox that podnet has no record of: it is older than podnet, or was deleted before. The default network's own DEL runs with
 * the runtime's ids, which frees what the container still holds there and is a no-op otherwise.
 */
async function delUnknown(
  node: NodeContext,
  request: DelRequest,
  signal: AbortSignal,
): Promise<void> {
  // Another call of the container made it, whose own DEL gives it back.
  if (node.store.holderOf(request.containerId, request.ifName) !== undefined) return;
  const conflist = await defaultIfKnown(node, request);
  if (conflist === undefined) return;
  const record: SandboxRecord = {
    version: 1,
    containerId: request.containerId,
    ifName: request.ifName,
    ...(request.netnsPath === undefined ? {} : { netns: request.netnsPath }),
    bootId: node.bootId,
    cniNetwork: request.networkName,
    cniArgs: encodeCniArgs(request.args),
    cniPath: [...request.cniPath, ...node.config.cniBinDir],
    pod: podOf(request.args),
    created: new Date().toISOString(),
    phase: "deleting",
    attachments: [],
  };
  const attachment = {
    network: conflist.name,
    ifName: request.ifName,
    default: true,
    conflist: conflist.text,
    capabilityArgs: {},
    states: startedStates(node, conflist),
  };
  await detach({ node, record, attachment, sandbox: undefined, signal });
}

/**
 * DEL does not wait for a cluster's API: most unknown sandboxes were deleted before, and what an older one holds is freed by GC
 * later.
 */
async function defaultIfKnown(
  node: NodeContext,
  { containerId }: DelRequest,
): Promise<Conflist | undefined> {
  try {
    return await defaultConflist(node.networks);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    // A default network that is disabled or wrong must not keep deleted pods from going; GC frees what they held once it is right.
    const away = error.code === cniCode.tryAgainLater;
    if (away && node.kube === undefined) throw error;
    node.log.warn({ containerId, fault: error.message }, "unknown sandbox: default not asked");
    return undefined;
  }
}

/** Whoever attached the container has begun the executables too. */
function startedStates(node: NodeContext, { plugins }: Conflist): AttachmentRecord["states"] {
  const states: AttachmentRecord["states"] = {};
  for (const [index, { type, ipam }] of plugins.entries()) {
    if (node.plugins.plugin(type, []).executable) states[`${index}`] = { started: true };
    if (ipam?.type !== undefined) states[`${index}.ipam`] = { started: true };
  }
  return states;
}
