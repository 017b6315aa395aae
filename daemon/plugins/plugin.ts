import type { JsonObject } from "../../lib/base/json.ts";
import type { Log } from "../../lib/base/log.ts";
import type { Netns } from "../../lib/base/netns.ts";
import type { CniResult, PluginConfig, ValidAttachment } from "../../lib/cni/types.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";

/** The pod's network namespace, open for the length of one operation; whoever opened it closes it. */
export interface Sandbox {
  /** As the runtime gave it (CNI_NETNS); goes into results as `sandbox`. */
  readonly path: string;
  readonly netns: Netns;
  /** A socket that lives in the namespace. */
  readonly rtnl: Rtnetlink;
}

/**
 * What a plugin must remember between ADD and DEL beyond its configuration (what an interface looked like before, what was
 * borrowed from the node). It is part of the attachment's record: saved durably before the effect that it describes.
 */
export interface PluginState {
  /** What the latest save wrote; undefined when there was none. */
  load(): JsonObject | undefined;
  /** Resolves once the record is written. Call it before the effect. */
  save(state: JsonObject): Promise<void>;
}

/** The IPAM plugin of this call's configuration, bound to the same attachment. Without `ipam` in the configuration there is none. */
export interface BoundIpam {
  /** The result has `ips`, `routes` and `dns`, no `interfaces`, and no `interface` index. */
  add(): Promise<CniResult>;
  /** Idempotent: succeeds for what was never allocated. */
  del(): Promise<void>;
  check(): Promise<void>;
}

/** What something on the node belongs to, or is. */
export interface Belongings {
  readonly containerId: string;
  readonly ifName?: string;
  /** Without prefix length. */
  readonly address?: string;
}

/** What lives on the node although nobody lists it: pods that are older than podnet, or whose record was lost. */
export interface Liveness {
  /** Why it may be in use; undefined: it is dead for sure. */
  inUse(what: Belongings): string | undefined;
  /** Notes what was left, for the person who asked. */
  leave(what: string, why: string): void;
}

/** What STATUS and GC work on: one plugin of a network's configuration, no attachment. */
export interface NetworkCall {
  /** The CNI network name (for podnet's own networks the PodNetwork's name). */
  readonly network: string;
  /** The plugin object, unknown keys included. `args.cni` has the selection's `cni-args` merged in. */
  readonly config: PluginConfig;
  /** The node's own network namespace. */
  readonly host: Rtnetlink;
  /** Ends every wait. */
  readonly signal: AbortSignal;
  /** For what a person should know although the call succeeds. */
  readonly log?: Log;
  /** GC only: to be asked before anything is freed that others than podnet may have made, too. */
  readonly liveness?: Liveness;
}

/** One call of one plugin for one attachment. */
export interface PluginCall extends NetworkCall {
  readonly containerId: string;
  readonly ifName: string;
  /** undefined only for DEL, when the namespace is gone or was never given. */
  readonly sandbox: Sandbox | undefined;
  /** CNI_NETNS as the runtime gave it; may name something that is gone. */
  readonly netnsPath: string | undefined;
  /** Capability arguments, already reduced to what this plugin declares. */
  readonly runtimeConfig: JsonObject;
  /** CNI_ARGS, decoded, without the keys that are podnet's own. */
  readonly cniArgs: ReadonlyMap<string, string>;
  /** ADD: of the plugin before it. CHECK and DEL: the network's final result, undefined when ADD never finished. */
  readonly prevResult: CniResult | undefined;
  readonly ipam: BoundIpam | undefined;
  readonly state: PluginState;
}

/**
 * A network plugin, in process or an executable. Failures are CniErrors.
 *
 * add: makes the attachment and returns the network's result so far. It need not clean up after its own failure: `del` is
 *   always called then, with the same call. It must fail, without touching it, when something it would create exists already.
 * del: gives back everything that add could have made or borrowed, whatever is left of it, however far add came. Idempotent, works without the
 *   namespace, never touches what this attachment did not make, and resolves when the kernel has reported the links gone.
 * check: rejects when the attachment is not as `prevResult` says.
 * status: rejects (code 50 or 51) when add could not succeed now for a reason that concerns every attachment.
 * gc: frees what belongs to this network and to no valid attachment; goes on after an error and reports it at the end.
 */
export interface Plugin {
  add(call: PluginCall): Promise<CniResult>;
  del(call: PluginCall): Promise<void>;
  check(call: PluginCall): Promise<void>;
  status?(call: NetworkCall): Promise<void>;
  gc?(call: NetworkCall, valid: readonly ValidAttachment[]): Promise<void>;
}
