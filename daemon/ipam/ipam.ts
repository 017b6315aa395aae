import type { CniResult, ValidAttachment } from "../../lib/cni/types.ts";
import type { BoundIpam, NetworkCall, PluginCall } from "../plugins/plugin.ts";

/** What an IPAM plugin sees of the interface plugin's call: the same configuration and the same attachment. */
export type IpamCall = NetworkCall &
  Pick<PluginCall, "containerId" | "ifName" | "runtimeConfig" | "cniArgs" | "prevResult">;

/**
 * An IPAM plugin in process. Failures are CniErrors.
 *
 * add: gives the attachment its addresses; repeated for the same attachment it gives the same ones (an ADD that was cut off is retried).
 * del: frees what the attachment holds; idempotent, succeeds for what was never allocated, and needs no valid configuration but its place.
 * check: rejects when the attachment's addresses are no longer reserved for it.
 * gc: frees what no valid attachment of this network holds.
 */
export interface IpamPlugin {
  add(call: IpamCall): Promise<CniResult>;
  del(call: IpamCall): Promise<void>;
  check(call: IpamCall): Promise<void>;
  status?(call: NetworkCall): Promise<void>;
  gc?(call: NetworkCall, valid: readonly ValidAttachment[]): Promise<void>;
}

/** The plugin, tied to one attachment. */
export function bindIpam(plugin: IpamPlugin, call: IpamCall): BoundIpam {
  return {
    add: () => plugin.add(call),
    del: () => plugin.del(call),
    check: () => plugin.check(call),
  };
}
