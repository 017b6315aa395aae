import { setTimeout as delay } from "node:timers/promises";
import { createHostLocal } from "../../daemon/ipam/host-local.ts";
import { bindIpam, type IpamPlugin } from "../../daemon/ipam/ipam.ts";
import { createStatic } from "../../daemon/ipam/static.ts";
import type { Plugin, PluginCall, PluginState } from "../../daemon/plugins/plugin.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import * as libc from "../../lib/base/libc.ts";
import { openLog } from "../../lib/base/log.ts";
import { Netns } from "../../lib/base/netns.ts";
import type { CniResult, PluginConfig } from "../../lib/cni/types.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { Lab, Place } from "./lab.ts";
import { LeakCheck } from "./state.ts";

/**
 * Makes this process live in a node of its own: what plugins do to "the node", sysctls included, happens there. Call it once, first
 * thing in a test file; the way back is the end of the process.
 */
export function moveIntoNode(lab: Lab): Place {
  const node = lab.node();
  const netns = Netns.open(node.path);
  libc.setns(netns.fd, libc.CLONE_NEWNET);
  netns.close();
  return node;
}

/** What a call of a plugin in process is made of. */
export interface Attachment {
  readonly config: JsonObject & { readonly type: string };
  readonly pod: Place;
  readonly ifName?: string;
  readonly containerId?: string;
  readonly network?: string;
  readonly runtimeConfig?: JsonObject;
  readonly cniArgs?: Readonly<Record<string, string>>;
  readonly prevResult?: CniResult;
}

const ipams: ReadonlyMap<string, IpamPlugin> = new Map([
  ["host-local", createHostLocal()],
  ["static", createStatic()],
]);

/**
 * One attachment of a plugin in this process, as the daemon calls it: the state is kept between verbs, and DEL runs after a failed ADD.
 * Sockets and namespaces are closed after each verb.
 */
export class Attached {
  readonly #plugin: Plugin;
  readonly #base: Attachment;
  /** What it warned of. */
  readonly warnings: string[] = [];
  /** The list's final result, where other plugins come after this one. */
  finalResult: CniResult | undefined;
  #state: JsonObject | undefined;
  #result: CniResult | undefined;

  constructor(plugin: Plugin, base: Attachment) {
    this.#plugin = plugin;
    this.#base = base;
  }

  /** As the daemon does it: what a failed ADD left is undone by DEL before the error is answered. */
  async add(): Promise<CniResult> {
    try {
      this.#result = await this.addOnly();
      return this.#result;
    } catch (error) {
      await this.del();
      throw error;
    }
  }

  /** ADD without the DEL after its failure, as when the daemon is killed. */
  addOnly(): Promise<CniResult> {
    return this.#run((call) => this.#plugin.add(call), { prevResult: this.#base.prevResult });
  }

  check(): Promise<void> {
    return this.#run((call) => this.#plugin.check(call), {
      prevResult: this.finalResult ?? this.#result,
    });
  }

  del(): Promise<void> {
    return this.#run((call) => this.#plugin.del(call), { prevResult: this.#result });
  }

  /** DEL when the namespace is gone. */
  delWithoutPod(): Promise<void> {
    return this.#run((call) => this.#plugin.del(call), { prevResult: this.#result, gone: true });
  }

  async #run<T>(
    work: (call: PluginCall) => Promise<T>,
    how: { readonly prevResult: CniResult | undefined; readonly gone?: boolean },
  ): Promise<T> {
    using host = Rtnetlink.open();
    if (how.gone === true) return await work(this.#call({ ...how, host, sandbox: undefined }));
    const { path } = this.#base.pod;
    using netns = Netns.open(path);
    using rtnl = Rtnetlink.open(netns);
    return await work(this.#call({ ...how, host, sandbox: { path, netns, rtnl } }));
  }

  #call(parts: Pick<PluginCall, "host" | "sandbox" | "prevResult">): PluginCall {
    const base = this.#base;
    const config = base.config as PluginConfig;
    const state: PluginState = {
      load: () => this.#state,
      save: async (value) => {
        // What is saved must survive the way to the disk and back.
        this.#state = JSON.parse(JSON.stringify(value)) as JsonObject;
      },
    };
    const call: PluginCall = {
      host: parts.host,
      sandbox: parts.sandbox,
      prevResult: parts.prevResult,
      state,
      network: base.network ?? "net",
      config,
      signal: AbortSignal.timeout(20_000),
      containerId: base.containerId ?? "container",
      ifName: base.ifName ?? "eth0",
      netnsPath: base.pod.path,
      runtimeConfig: base.runtimeConfig ?? {},
      cniArgs: new Map(Object.entries(base.cniArgs ?? {})),
      ipam: undefined,
      log: openLog("warn", {
        write: (line) => void this.warnings.push(String(JSON.parse(line).msg)),
      }),
    };
    const ipam = ipams.get(config.ipam?.type ?? "");
    return ipam === undefined ? call : { ...call, ipam: bindIpam(ipam, call) };
  }
}

/** A configuration of the static IPAM: addresses in CIDR form, each with its gateway or without. */
export function staticIpam(...addresses: readonly (readonly [string, string?])[]): JsonObject {
  return {
    type: "static",
    addresses: addresses.map(([address, gateway]) =>
      gateway === undefined ? { address } : { address, gateway },
    ),
  };
}

/** A leak check of these places, begun once what earlier detaches still do has ended. */
export async function watch(...places: readonly Place[]): Promise<LeakCheck> {
  await delay(150);
  return new LeakCheck(places);
}

/** As LeakCheck.assertClean, within two seconds: a detach is answered before the kernel has finished all of it. */
export async function cleanSoon(leaks: LeakCheck): Promise<void> {
  const end = performance.now() + 2000;
  for (;;) {
    try {
      leaks.assertClean();
      return;
    } catch (error) {
      if (performance.now() > end) throw error;
    }
    await delay(50);
  }
}
