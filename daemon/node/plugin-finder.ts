import type { Log } from "../../lib/base/log.ts";
import type { DelegateCgroups } from "../../lib/cni/delegate-cgroup.ts";
import { type DelegateHost, ExecutablePlugin, executableIpam } from "../plugins/executable.ts";
import { createInProcessIpam, inProcessPlugins } from "../plugins/registry.ts";
import type { Found, PluginFinder } from "./context.ts";

/** How executables are started on this node. */
export interface FinderOptions {
  /** The static podnet that enters cgroup and mount namespace; none: neither is done. */
  readonly helper: string | undefined;
  /** The mount namespace that executables run in; none: the daemon's own. */
  readonly mntns?: string | undefined;
  readonly cgroups: DelegateCgroups | undefined;
  readonly log: Log;
}

/** Finds a type's plugin: in process where podnet has it, else the executable of that name. */
export function findPlugins({ helper, mntns, cgroups, log }: FinderOptions): PluginFinder {
  const host: DelegateHost = {
    ...(helper === undefined ? {} : { helper }),
    ...(mntns === undefined ? {} : { mntns }),
    ...(cgroups === undefined ? {} : { cgroups }),
    onStderr: (type, text) =>
      log.info({ type, text: text.slice(0, 2000) }, "plugin wrote on stderr"),
  };
  const ipam = createInProcessIpam();
  return {
    plugin: (type, cniPath) =>
      found(inProcessPlugins.get(type), () => new ExecutablePlugin({ type, cniPath, host })),
    external: (type, cniPath) => ({
      plugin: new ExecutablePlugin({ type, cniPath, host }),
      executable: true,
    }),
    ipam: (type, cniPath) => found(ipam.get(type), () => executableIpam({ type, cniPath, host })),
  };
}

function found<T>(inProcess: T | undefined, executable: () => T): Found<T> {
  if (inProcess !== undefined) return { plugin: inProcess, executable: false };
  return { plugin: executable(), executable: true };
}
