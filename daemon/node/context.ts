import type { Log } from "../../lib/base/log.ts";
import type { Netns } from "../../lib/base/netns.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { IpamPlugin } from "../ipam/ipam.ts";
import type { Plugin } from "../plugins/plugin.ts";
import type { Collections } from "./collections.ts";
import type { DaemonConfig } from "./config.ts";
import type { KubeNode } from "./kube/node.ts";
import type { KeyedLocks } from "./locks.ts";
import type { NetworkSource } from "./networks.ts";
import type { Notices } from "./notices.ts";
import type { Store } from "./store.ts";

/** What carries out a type. */
export interface Found<T> {
  readonly plugin: T;
  readonly executable: boolean;
}

/** Finds what carries out a type: in process where podnet has it, else an executable on `cniPath` (which may not be there). */
export interface PluginFinder {
  plugin(type: string, cniPath: readonly string[]): Found<Plugin>;
  ipam(type: string, cniPath: readonly string[]): Found<IpamPlugin>;
  /** The executable, whatever podnet has in process. */
  external(type: string, cniPath: readonly string[]): Found<Plugin>;
}

/** What every operation of the daemon works with; built once at start. */
export interface NodeContext {
  readonly config: DaemonConfig;
  readonly log: Log;
  readonly store: Store;
  readonly locks: KeyedLocks;
  readonly collections: Collections;
  readonly networks: NetworkSource;
  readonly notices: Notices;
  /** The cluster that the node belongs to; undefined: none. */
  readonly kube?: KubeNode;
  readonly plugins: PluginFinder;
  /** A socket in the node's own namespace. */
  readonly host: Rtnetlink;
  readonly hostNetns: Netns;
  readonly bootId: string;
}
