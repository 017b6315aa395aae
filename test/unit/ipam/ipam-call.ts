import type { IpamCall } from "../../../daemon/ipam/ipam.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";

export interface CallParts {
  readonly ipam: JsonObject & { readonly type?: string };
  readonly containerId?: string;
  readonly ifName?: string;
  readonly network?: string;
  readonly args?: JsonObject;
  readonly runtimeConfig?: JsonObject;
  readonly cniArgs?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  readonly cniVersion?: string;
}

/** A call as an interface plugin hands it on. IPAM plugins do no netlink. */
export function ipamCall(parts: CallParts): IpamCall {
  const network = parts.network ?? "blue";
  return {
    network,
    config: {
      type: "bridge",
      name: network,
      cniVersion: parts.cniVersion ?? "1.1.0",
      ipam: parts.ipam,
      ...(parts.args !== undefined && { args: parts.args }),
    },
    host: undefined as unknown as Rtnetlink,
    signal: parts.signal ?? AbortSignal.timeout(20_000),
    containerId: parts.containerId ?? "c1",
    ifName: parts.ifName ?? "eth0",
    runtimeConfig: parts.runtimeConfig ?? {},
    cniArgs: new Map(Object.entries(parts.cniArgs ?? {})),
    prevResult: undefined,
  };
}
