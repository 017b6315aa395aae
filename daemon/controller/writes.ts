import type { JsonObject } from "../../lib/base/json.ts";
import type { Reflector } from "../../lib/kube/reflector.ts";
import { type ObjectKey, objectPath, type Resource } from "../../lib/kube/resource.ts";
import type { ControllerContext } from "./context.ts";
import type { KeptObject } from "./kept-objects.ts";

/** An object as it was when something was decided about it, and where it is kept. */
export interface Target<T> {
  readonly resource: Resource;
  readonly key: ObjectKey;
  readonly kept: KeptObject<T>;
  readonly store: Reflector<KeptObject<T>>;
  readonly signal: AbortSignal;
}

type Context = Pick<ControllerContext, "client" | "metrics">;

/**
 * Writes part of an object's status. It succeeds only on the very version that was decided about: rejects with a conflict (409)
 * when anybody has written since, and does nothing then.
 */
export async function writeStatus<T>(
  context: Context,
  target: Target<T>,
  status: JsonObject,
): Promise<void> {
  await write(context, target, { what: "status", body: { status } });
}

/** Writes the finalizers of an object; as `writeStatus`. */
export async function writeFinalizers<T>(
  context: Context,
  target: Target<T>,
  finalizers: readonly string[],
): Promise<void> {
  await write(context, target, { what: "finalizers", body: { metadata: { finalizers } } });
}

async function write<T>(
  { client, metrics }: Context,
  { resource, key, kept, store, signal }: Target<T>,
  { what, body }: { readonly what: "status" | "finalizers"; readonly body: JsonObject },
): Promise<void> {
  const { uid, version: resourceVersion } = kept;
  const path = objectPath(resource, key);
  const metadata = { ...(body["metadata"] as JsonObject | undefined), uid, resourceVersion };
  const answer = await client.request({
    method: "PATCH",
    path: what === "status" ? `${path}/status` : path,
    contentType: "application/merge-patch+json",
    body: { ...body, metadata },
    signal,
  });
  metrics.writes.inc({ kind: resource.kind, what });
  // The answer to the last finalizer's removal is an object that is gone by then.
  const isGone = what === "finalizers" && kept.deleted !== undefined;
  if (!isGone) store.learn(answer, (known) => known?.version === resourceVersion);
}
