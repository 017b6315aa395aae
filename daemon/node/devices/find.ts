import type { NodeContext } from "../context.ts";
import type { Devices } from "./assign.ts";
import { claimedDevices } from "./claims.ts";
import { askKubelet } from "./pod-resources.ts";

/** What is looked for, and for whom. */
export interface DeviceQuestion {
  readonly pod: {
    readonly namespace: string;
    readonly name: string;
    readonly uid: string | undefined;
  };
  /** How many devices of each resource are needed. */
  readonly needs: ReadonlyMap<string, number>;
  readonly signal: AbortSignal;
}

/**
 * The devices of a pod by resource: what device plugins gave it, and, where that is not enough, what its claims have. Rejects with code
 * 11 when the kubelet or the API server can't be asked.
 */
export async function findDevices(
  { config, kube }: NodeContext,
  { pod, needs, signal }: DeviceQuestion,
): Promise<Devices> {
  const { namespace, name } = pod;
  const given = await askKubelet({ socket: config.podResourcesSocket, namespace, name, signal });
  const lacking = [...needs].filter(
    ([resource, count]) => (given.plugin.get(resource)?.length ?? 0) < count,
  );
  if (lacking.length === 0) return given.plugin;
  const wanted = new Set(lacking.map(([resource]) => resource));
  const claimed = await claimedDevices({
    client: kube?.client,
    nodeName: kube?.self.name,
    pod,
    prepared: given.claims,
    wanted,
    signal,
  });
  const all = new Map(given.plugin);
  for (const [resource, ids] of claimed) {
    all.set(resource, [...new Set([...(all.get(resource) ?? []), ...ids])].sort());
  }
  return all;
}
