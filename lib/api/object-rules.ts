import type { Fault } from "../base/decode.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import { accessMode } from "./attach-access.ts";
import { grantFault } from "./grants.ts";
import { annotations, defaultNetworkName, kinds } from "./names.ts";
import { sameJson } from "./same-json.ts";

/** Keys of a PodNetwork's spec that its first version fixes (spec A.1, K24b); `enabled` can be changed. */
const fixedKeys = ["provider", "parametersRefs", "parameters", "ipam4", "ipam6"] as const;

/**
 * What an update would change that can't be changed: the rules that the CRDs have in CEL (spec A.1.4, A.2), for servers that don't know
 * them. Keys that podnet does not know are left to the schema.
 */
export function changedFaults(kind: string, before: unknown, after: unknown): Fault[] {
  const [old, next] = [specOf(before), specOf(after)];
  if (kind === kinds.podNetwork) {
    return fixedKeys
      .filter((key) => !sameJson(old[key], next[key]))
      .map((key) => ({ path: `spec.${key}`, message: "is immutable: create another PodNetwork" }));
  }
  if (kind !== kinds.podNetworkAttachment || sameJson(old, next)) return [];
  return [{ path: "spec", message: "is immutable: create another PodNetworkAttachment" }];
}

/** Whether an update leaves the spec as it was: then its faults are no news, and nobody who writes metadata is to blame. */
export function sameSpec(before: unknown, after: unknown): boolean {
  return sameJson(specOf(before), specOf(after));
}

/** What is wrong with the annotations that say who may use a network; those that an update leaves alone are no news. */
export function accessFaults(
  given: Readonly<Record<string, string>>,
  before: Readonly<Record<string, string>> = {},
): Fault[] {
  const changed = [
    annotations.allowedNamespaces,
    annotations.allowedNamespaceSelector,
    annotations.access,
  ].filter((key) => given[key] !== before[key]);
  return changed.flatMap((key) => {
    const message = annotationFault(given, key);
    return message === undefined ? [] : [{ path: "metadata.annotations", message }];
  });
}

function annotationFault(given: Readonly<Record<string, string>>, key: string): string | undefined {
  if (key !== annotations.access) return grantFault(given, key);
  const access = accessMode(given);
  return access.mode === "faulty" ? access.reason : undefined;
}

/** Why an object must not be deleted; undefined: it may. */
export function deletionFault(kind: string, name: string): string | undefined {
  if (kind !== kinds.podNetwork || name !== defaultNetworkName) return undefined;
  return `PodNetwork "${defaultNetworkName}" can't be deleted: it is the network of every pod that selects none`;
}

function specOf(object: unknown): JsonObject {
  const spec = isJsonObject(object) ? object["spec"] : undefined;
  return isJsonObject(spec) ? spec : {};
}
