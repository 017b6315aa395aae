import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import type { KubeClient } from "./client.ts";
import { isNotFound } from "./error.ts";
import type { Resource } from "./resource.ts";

/** The API of Dynamic Resource Allocation in one cluster, and until when it is asked. */
export interface DraApi {
  readonly client: KubeClient;
  /** `/apis/resource.k8s.io/v1` */
  readonly base: string;
  readonly signal: AbortSignal;
}

const group = "/apis/resource.k8s.io";
/** Those that have claims whose status names driver, pool and device (Kubernetes 1.32); newest first. */
const versions = ["v1", "v1beta2", "v1beta1"] as const;
const page = "200";

/** The newest version of the API that both sides have; undefined: this cluster has none. Rejects with a KubeError. */
export async function findDraApi(
  client: KubeClient,
  signal: AbortSignal,
): Promise<DraApi | undefined> {
  const served = objectsOf(await getIfThere({ client, signal }, group), "versions");
  const names = served.map((one) => one["version"]);
  const version = versions.find((one) => names.includes(one));
  return version === undefined ? undefined : { client, base: `${group}/${version}`, signal };
}

/** Claims, for paths. */
export function claimResource({ base }: DraApi): Resource {
  return { base, plural: "resourceclaims", namespaced: true, kind: "ResourceClaim" };
}

/** The JSON at a path; undefined: there is none. Rejects with a KubeError. */
export async function getIfThere(
  { client, signal }: Pick<DraApi, "client" | "signal">,
  path: string,
): Promise<unknown> {
  try {
    return await client.request({ path, signal });
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

/** The ResourceSlices that a field selector leaves, page by page. Rejects with a KubeError. */
export async function* resourceSlices(
  { client, base, signal }: DraApi,
  fieldSelector: string,
): AsyncGenerator<readonly JsonObject[]> {
  let next: Json | undefined = "";
  do {
    const more: Record<string, string> = next === "" ? {} : { continue: next };
    const query = { fieldSelector, limit: page, ...more };
    const answer = await client.request({ path: `${base}/resourceslices`, query, signal });
    yield objectsOf(answer, "items");
    const metadata = isJsonObject(answer) ? answer["metadata"] : undefined;
    next = isJsonObject(metadata) ? metadata["continue"] : undefined;
  } while (typeof next === "string" && next !== "");
}

/** The objects of a list in an object; what is no such list has none. */
export function objectsOf(value: unknown, key: string): readonly JsonObject[] {
  const list = isJsonObject(value) ? value[key] : undefined;
  return Array.isArray(list) ? (list as readonly Json[]).filter(isJsonObject) : [];
}
