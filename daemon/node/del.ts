import type { Conflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { DelRequest } from "../../lib/cni/request.ts";
import { detach } from "./attachment.ts";
import type { NodeContext } from "./context.ts";
import { begunStates, findInherited, markExternal } from "./multus/cache-inherit.ts";
import { foreignRecord, giveBackInherited } from "./multus/cache-leftovers.ts";
import type { AttachmentRecord } from "./record.ts";
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
    // A kubelet repeats each DEL some times.
    if (node.store.wasGivenBack(request)) return;
    await delUnknown(node, request, signal);
    forgetUnreadable(node, request);
    return;
  }
  using sandbox = reopenSandbox(node.bootId, record, request.netnsPath);
  await giveBack({ node, record, sandbox, signal });
  forgetUnreadable(node, request);
}

/** Nobody can tell what a damaged record stood for; once its sandbox is deleted, what is left of it is garbage like any other. */
function forgetUnreadable(node: NodeContext, request: DelRequest): void {
  const file = node.store.forgetUnreadable(request);
  if (file === undefined) return;
  const { containerId } = request;
  node.log.warn({ containerId, file }, "record was damaged: what it held is left to gc");
}

/**
 * A sandbox that podnet has no record of: it is older than podnet, or was deleted before. What the files of a previous Multus, or of the runtime, say is
 * given back; where they say nothing, the default network's own DEL runs with the runtime's ids, which frees what the container still holds there and
 * is a no-op otherwise.
 */
async function delUnknown(
  node: NodeContext,
  request: DelRequest,
  signal: AbortSignal,
): Promise<void> {
  // Another call of the container made it, whose own DEL gives it back.
  if (node.store.holderOf(request.containerId, request.ifName) !== undefined) return;
  const inherited = await findInherited(node, request);
  // A Multus that lives gives the rest back itself.
  if (inherited === "in hand") return;
  const found = inherited?.attachments ?? [];
  const known = inherited?.complete === true || found.some((one) => one.ifName === request.ifName);
  const own = known ? undefined : await defaultIfKnown(node, request);
  const guess = own === undefined ? [] : [await defaultAttachment(node, request, own)];
  const record = foreignRecord(node, request, [...guess, ...found]);
  if (inherited !== undefined) {
    await giveBackInherited({ node, record: { ...record, inherited: inherited.files }, signal });
    return;
  }
  for (const attachment of record.attachments) {
    await detach({ node, record, attachment, sandbox: undefined, signal });
  }
}

async function defaultAttachment(
  node: NodeContext,
  { ifName, cniPath }: DelRequest,
  conflist: Conflist,
): Promise<AttachmentRecord> {
  const attachment = {
    network: conflist.name,
    ifName,
    default: true,
    conflist: conflist.text,
    capabilityArgs: {},
    states: begunStates(conflist),
  };
  await markExternal(node, [attachment], cniPath);
  return attachment;
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
