import { encodeCniArgs, type SandboxRequest } from "../../lib/cni/request.ts";
import type { NodeContext } from "./context.ts";
import { podOf } from "./pods.ts";
import type { SandboxRecord } from "./record.ts";

type Named = Pick<SandboxRequest, "containerId" | "ifName" | "networkName" | "args" | "cniPath">;

/** What every record has of the request that it begins with. */
export function recordHead({ bootId, config }: NodeContext, request: Named) {
  return {
    version: 1,
    containerId: request.containerId,
    ifName: request.ifName,
    bootId,
    cniNetwork: request.networkName,
    cniArgs: encodeCniArgs(request.args),
    cniPath: cniPathOf(config, request),
    pod: podOf(request.args),
    created: new Date().toISOString(),
  } satisfies Partial<SandboxRecord>;
}

/** Where executables are looked for: the runtime's folders, then the daemon's. */
export function cniPathOf(
  { cniBinDir }: NodeContext["config"],
  { cniPath }: Pick<SandboxRequest, "cniPath">,
): string[] {
  return [...cniPath, ...cniBinDir];
}
