import { type Fault, formatFault } from "../base/decode.ts";
import type { JsonObject } from "../base/json.ts";

/** Who wrote the list: podnet's own dialect (spec A.3) or the NPWG standard's (spec B.2). */
export type Dialect = "podnet" | "npwg";

/** The object that a selection names. */
export type NetworkRef =
  | { readonly kind: "podNetwork"; readonly name: string }
  /** In the pod's namespace. */
  | {
      readonly kind: "podNetworkAttachment";
      readonly namespace: string;
      readonly name: string;
    }
  | { readonly kind: "nad"; readonly namespace: string; readonly name: string };

/** One published port. `protocol` is lower case. */
export interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly hostIP?: string;
}

/** Rates in bits a second, bursts in bits. */
export interface Bandwidth {
  readonly ingressRate?: number;
  readonly ingressBurst?: number;
  readonly egressRate?: number;
  readonly egressBurst?: number;
}

/**
 * The wish of one selection to own the pod's default route, for each family. `gateway4` and `gateway6` are set when the selection
 * names the gateway; else the network's own is meant. `strict`: the families were asked for one by one (`isDefaultGW4`), so that a
 * network that can't serve one is an error; otherwise a family that the network does not have is left to the others.
 */
export interface DefaultRouteWish {
  readonly v4: boolean;
  readonly v6: boolean;
  readonly gateway4?: string;
  readonly gateway6?: string;
  readonly strict: boolean;
}

/** One network that a pod asks for, valid in itself and beside the others of its list. */
export interface Selection {
  /** Position in the list as written, from 0. */
  readonly index: number;
  readonly ref: NetworkRef;
  /** Only when the selection names one. */
  readonly ifName?: string;
  /** Addresses with or without prefix length, canonical text. */
  readonly ips?: readonly string[];
  /** Six bytes, lower case, with colons. */
  readonly mac?: string;
  /** Eight bytes, lower case, with colons. */
  readonly infinibandGuid?: string;
  readonly portMappings?: readonly PortMapping[];
  readonly bandwidth?: Bandwidth;
  readonly deviceId?: string;
  readonly cniArgs?: JsonObject;
  readonly defaultRoute?: DefaultRouteWish;
  /** Name of an IPAMClaim in the pod's namespace. */
  readonly ipamClaim?: string;
}

/** A message that a runtime writes to a pod's events names so many faults; `faults` has all. */
export const mostFaultsShown = 10;

/** A selection is not what it should be: every fault found, each with the entry's index and the field in its path. */
export class SelectionError extends Error {
  override readonly name = "SelectionError";
  readonly faults: readonly Fault[];

  /** `origin` says where the list stands: `annotation podnet.dev/networks`. */
  constructor(origin: string, faults: readonly Fault[], cause?: unknown) {
    const shown = faults.slice(0, mostFaultsShown).map(formatFault);
    const more = faults.length - shown.length;
    if (more > 0) shown.push(`and ${more} more`);
    super(`read ${origin}: ${shown.join("; ")}`, { cause });
    this.faults = faults;
  }
}

/** The network's name as people and results show it: `blue`, or `namespace/name` of a namespaced object. */
export function refName(ref: NetworkRef): string {
  return ref.kind === "podNetwork" ? ref.name : `${ref.namespace}/${ref.name}`;
}
