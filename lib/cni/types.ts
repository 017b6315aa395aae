import type { Json, JsonObject } from "../base/json.ts";

/** Every version of the CNI specification that podnet speaks, oldest first. */
export const cniVersions = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;
export type CniVersion = (typeof cniVersions)[number];
export const newestCniVersion: CniVersion = "1.1.0";

export const cniVerbs = ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"] as const;
export type CniVerb = (typeof cniVerbs)[number];

/** An interface of a result (CNI 1.1.0, "ADD Success"). `podNetwork` is podnet's tag: the network that the interface belongs to. */
export interface CniInterface {
  readonly name: string;
  readonly mac?: string;
  readonly mtu?: number;
  /** Path of the network namespace; absent for interfaces of the node. */
  readonly sandbox?: string;
  readonly socketPath?: string;
  readonly pciID?: string;
  readonly podNetwork?: string;
}

/** An address of a result: `address` in CIDR form, `interface` an index into the result's `interfaces`. */
export interface CniIp {
  readonly address: string;
  readonly gateway?: string;
  readonly interface?: number;
  readonly podNetwork?: string;
}

export interface CniRoute {
  readonly dst: string;
  readonly gw?: string;
  readonly mtu?: number;
  readonly advmss?: number;
  readonly priority?: number;
  readonly table?: number;
  readonly scope?: number;
}

export interface CniDns {
  readonly nameservers?: readonly string[];
  readonly domain?: string;
  readonly search?: readonly string[];
  readonly options?: readonly string[];
}

/**
 * A result inside podnet: always of the newest shape (1.1.0), whatever version came in or goes out.
 * `lib/cni/result.ts` converts at the edges. Lists are present even when empty.
 */
export interface CniResult {
  readonly interfaces: readonly CniInterface[];
  readonly ips: readonly CniIp[];
  readonly routes: readonly CniRoute[];
  readonly dns: CniDns;
}

export const emptyResult: CniResult = { interfaces: [], ips: [], routes: [], dns: {} };

/** One attachment as GC's `cni.dev/valid-attachments` lists it. */
export interface ValidAttachment {
  readonly containerID: string;
  readonly ifname: string;
}

/** One plugin object of a network configuration: known keys typed, all others kept. */
export interface PluginConfig extends JsonObject {
  readonly type: string;
  readonly capabilities?: { readonly [name: string]: boolean };
  readonly ipam?: JsonObject & { readonly type?: string };
  readonly [key: string]: Json | undefined;
}
