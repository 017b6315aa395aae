import type { CniIp, CniResult } from "../../lib/cni/types.ts";

export const resultScopes = ["auto", "all", "default"] as const;
export type ResultScope = (typeof resultScopes)[number];

/** What one attachment brought: its network's final result. */
export interface AttachmentResult {
  readonly network: string;
  readonly result: CniResult;
}

/**
 * Makes one result of the attachments' results: the first (default) network's first, the others in order, each interface and each
 * address tagged with its network, the indices of addresses moved with their interfaces. `dns` is the first network's.
 * With `scope` "default" the first network's alone, tagged in the same way.
 */
export function mergeResults(
  attachments: readonly AttachmentResult[],
  scope: "all" | "default",
): CniResult {
  const included = scope === "default" ? attachments.slice(0, 1) : attachments;
  let offset = 0;
  const parts: CniResult[] = [];
  for (const { network, result } of included) {
    parts.push(tagged(network, result, offset));
    offset += result.interfaces.length;
  }
  return {
    interfaces: parts.flatMap((part) => part.interfaces),
    ips: parts.flatMap((part) => part.ips),
    routes: parts.flatMap((part) => part.routes),
    dns: parts[0]?.dns ?? {},
  };
}

/**
 * The scope of one answer. `auto` means "default" on CRI-O, which takes every address of a result as the pod's own while
 * Kubernetes allows one a family, and "all" elsewhere.
 */
export function effectiveScope(
  scope: ResultScope,
  request: { readonly netnsPath: string; readonly args: ReadonlyMap<string, string> },
): "all" | "default" {
  if (scope !== "auto") return scope;
  return isCriO(request.netnsPath, request.args) ? "default" : "all";
}

const bareUuid = /\/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * A runtime does not say who it is. What tells CRI-O apart: it names a pod's network namespace by a bare UUID, where containerd
 * puts `cni-` before it and podman `netns-`.
 */
export function isCriO(netnsPath: string, cniArgs: ReadonlyMap<string, string>): boolean {
  return cniArgs.has("K8S_POD_NAME") && bareUuid.test(netnsPath);
}

function tagged(podNetwork: string, result: CniResult, offset: number): CniResult {
  return {
    interfaces: result.interfaces.map((item) => ({ ...item, podNetwork })),
    ips: result.ips.map((ip) => ({ ...moved(ip, offset), podNetwork })),
    routes: result.routes,
    dns: result.dns,
  };
}

/** An address keeps having no interface when it had none; a negative index (old plugins write -1) means the same. */
function moved(ip: CniIp, offset: number): CniIp {
  const { interface: index, ...rest } = ip;
  if (index === undefined || index < 0) return rest;
  return { ...rest, interface: index + offset };
}
