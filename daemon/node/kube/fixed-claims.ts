import type { FixedAttachment } from "../../../lib/api/fixed-addresses.ts";
import { type Holder, readHolder } from "../../../lib/api/holder.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import { isConflict, isNotFound } from "../../../lib/kube/error.ts";
import {
  type ObjectKey,
  objectPath,
  type Resource,
  resources,
} from "../../../lib/kube/resource.ts";
import type { NodeContext } from "../context.ts";
import type { PlannedAttachment } from "../plan.ts";
import { podOf } from "../pods.ts";
import { isSame } from "./kept-pod.ts";
import type { KubeNode } from "./node.ts";

/** Writes are tried so often: each failure means that somebody else has written. */
const attempts = 4;
const questionTimeout = 5_000;

interface Claim {
  readonly kube: KubeNode;
  readonly fixed: FixedAttachment;
  readonly own: Holder;
  readonly signal: AbortSignal;
}

/**
 * Takes the fixed addresses of the plan's PodNetworkAttachments for the pod: the attachment's status names the one pod that has them,
 * and is written on the very version that named nobody, so that two nodes can't both succeed. One that names a pod which is gone or has
 * ended is taken over. A pod that has them already is not asked about. Rejects with code 108 when another pod has them, 11 when the
 * API server can't be asked. Nothing has to be given back: they are free once the pod is gone.
 */
export async function claimFixed(
  { kube }: Pick<NodeContext, "kube">,
  { args }: { readonly args: ReadonlyMap<string, string> },
  work: { readonly attachments: readonly PlannedAttachment[]; readonly signal: AbortSignal },
): Promise<void> {
  const fixed = work.attachments.flatMap((one) => one.fixed ?? []);
  if (kube === undefined || fixed.length === 0) return;
  const own = await ownHolder(kube, args);
  if (own === undefined) return;
  for (const one of fixed) await claim({ kube, fixed: one, own, signal: work.signal });
}

/** The pod under the uid that the API knows, which a static pod's own is not; undefined: the call is for no pod. */
async function ownHolder(
  kube: KubeNode,
  args: ReadonlyMap<string, string>,
): Promise<Holder | undefined> {
  const { namespace, name, uid } = podOf(args);
  if (namespace === undefined || name === undefined) return undefined;
  const key = { namespace, name };
  const known = await kube.pods.lookup.find(key);
  if (known !== undefined && isSame(known, uid)) return { name, uid: known.uid };
  const live = await kube.pods.lookup.ask(key);
  if (live !== undefined && isSame(live, uid)) return { name, uid: live.uid };
  const message = `attach pod "${namespace}/${name}": the API server has no such pod, or another one of its name`;
  throw new CniError(cniCode.tryAgainLater, message);
}

async function claim(work: Claim): Promise<void> {
  const { kube, fixed, own, signal } = work;
  const known = kube.networks.attachments.reflector.get(fixed);
  if (known?.holder?.uid === own.uid) return;
  try {
    for (let attempt = 0; attempt < attempts; attempt++) {
      if (await claimOnce(work)) return;
    }
  } catch (error) {
    if (error instanceof CniError || signal.aborted) throw error;
    throw new CniError(cniCode.tryAgainLater, `${title(fixed)}: ${errorText(error)}`, {
      cause: error,
    });
  }
  const message = `${title(fixed)}: it changed while its addresses were being taken`;
  throw new CniError(cniCode.tryAgainLater, message);
}

/** false: somebody else was quicker with a write. */
async function claimOnce({ kube, fixed, own, signal }: Claim): Promise<boolean> {
  const { client } = kube;
  const resource = resources.podNetworkAttachments;
  const object = await find(client, resource, { key: fixed, signal });
  if (object === undefined) {
    throw new CniError(cniCode.podNetworkMissing, `${title(fixed)} not found`);
  }
  const holder = readHolder(object);
  if (holder?.uid === own.uid) return true;
  if (holder !== undefined && (await isThere(client, { fixed, holder, signal }))) {
    throw refused(fixed, holder);
  }
  const { uid, resourceVersion } = isJsonObject(object["metadata"]) ? object["metadata"] : {};
  try {
    await client.request({
      method: "PATCH",
      path: `${objectPath(resource, fixed)}/status`,
      contentType: "application/merge-patch+json",
      body: { metadata: { uid, resourceVersion }, status: { holder: own } },
      timeout: questionTimeout,
      signal,
    });
    return true;
  } catch (error) {
    if (isConflict(error)) return false;
    throw error;
  }
}

async function find(
  client: KubeClient,
  resource: Resource,
  { key, signal }: { readonly key: ObjectKey; readonly signal: AbortSignal },
): Promise<JsonObject | undefined> {
  try {
    const path = objectPath(resource, key);
    const object = await client.request({ path, timeout: questionTimeout, signal });
    return isJsonObject(object) ? object : undefined;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

/** Whether the pod still is one that may use an address, by the API's own word. */
async function isThere(
  client: KubeClient,
  of: { readonly fixed: FixedAttachment; readonly holder: Holder; readonly signal: AbortSignal },
): Promise<boolean> {
  const { fixed, holder, signal } = of;
  const key = { namespace: fixed.namespace, name: holder.name };
  const pod = await find(client, resources.wholePods, { key, signal });
  if (pod === undefined) return false;
  const { metadata, status } = pod;
  const phase = isJsonObject(status) ? status["phase"] : undefined;
  const isOther = !isJsonObject(metadata) || metadata["uid"] !== holder.uid;
  return !isOther && phase !== "Succeeded" && phase !== "Failed";
}

function refused(fixed: FixedAttachment, holder: Holder): CniError {
  const addresses = fixed.addresses.join(", ");
  const message = `${title(fixed)}: pod "${holder.name}" has its address ${addresses}, which one pod at a time can have: wait until that pod is gone, or use an attachment of its own`;
  return new CniError(cniCode.addressUnavailable, message);
}

function title({ namespace, name }: FixedAttachment): string {
  return `PodNetworkAttachment "${namespace}/${name}"`;
}
