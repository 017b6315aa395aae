import type { Conflist } from "../../lib/cni/conflist.ts";
import type { ValidAttachment } from "../../lib/cni/types.ts";
import type { IpamPlugin } from "../ipam/ipam.ts";
import type { Liveness, NetworkCall, Plugin } from "../plugins/plugin.ts";
import type { NodeContext } from "./context.ts";

/** One plugin of a network, with its IPAM plugin if it has one, and the call that both get. */
export interface NetworkStep {
  readonly plugin: Plugin;
  readonly ipam: IpamPlugin | undefined;
  readonly call: NetworkCall;
}

export interface StepOptions {
  readonly signal: AbortSignal;
  readonly liveness?: Liveness;
  /** Where executables are looked for; without it in the daemon's own folders. */
  readonly cniPath?: readonly string[];
}

/** The plugins of a network's chain, for calls that concern no attachment (STATUS, GC). */
export function networkSteps(
  node: NodeContext,
  conflist: Conflist,
  { signal, liveness, cniPath = node.config.cniBinDir }: StepOptions,
): NetworkStep[] {
  return conflist.plugins.map((config) => {
    const type = config.ipam?.type;
    return {
      plugin: node.plugins.plugin(config.type, cniPath).plugin,
      ipam: type === undefined || type === "" ? undefined : node.plugins.ipam(type, cniPath).plugin,
      call: {
        network: conflist.name,
        config: { ...config, cniVersion: conflist.cniVersion, name: conflist.name },
        host: node.host,
        log: node.log,
        signal,
        ...(liveness === undefined ? {} : { liveness }),
      },
    };
  });
}

export interface GarbageOptions {
  /** What is attached. */
  readonly valid: readonly ValidAttachment[];
  /** Types that are not called. */
  readonly without?: Pick<ReadonlySet<string>, "has">;
}

/** Runs GC of each plugin and its IPAM; goes on after a failure and throws the first at the end. */
export async function collectGarbage(
  steps: readonly NetworkStep[],
  { valid, without = new Set() }: GarbageOptions,
): Promise<void> {
  const faults: unknown[] = [];
  for (const { plugin, ipam, call } of steps) {
    const { type, ipam: ipamConfig } = call.config;
    const parts = [
      { type, part: plugin },
      { type: ipamConfig?.type ?? "", part: ipam },
    ];
    for (const one of parts) {
      if (without.has(one.type)) continue;
      try {
        await one.part?.gc?.(call, valid);
      } catch (error) {
        faults.push(error);
      }
    }
  }
  if (faults.length > 0) throw faults[0];
}
