import { z } from "zod";
import { errorCode } from "../../lib/base/errors.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Link, LinkChange } from "../../lib/netlink/model.ts";
import { changeMacSpoofCheck } from "./nftables/mac-spoof.ts";
import type { Plugin, PluginCall, Sandbox } from "./plugin.ts";
import { decodeConfig, optional, withoutAbsent } from "./shared/config.ts";
import { asCniError } from "./shared/errors.ts";
import { drift } from "./shared/interface.ts";
import { requireSandbox } from "./shared/made-link.ts";
import { readSysctl, type Sysctl, writeSysctls } from "./shared/sysctl.ts";
import { allowlistPath, requireAllowed, spelledByKernel, sysctlPath } from "./tuning-sysctls.ts";

const IFF_PROMISC = 0x100;
const IFF_ALLMULTI = 0x200;

const macField = optional(
  z.string().refine((text) => text === "" || /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(text), {
    error: (issue) => `"${issue.input}" is not a MAC address such as 02:00:00:00:00:01`,
  }),
);
const withMac = optional(z.object({ mac: macField }));
const configField = z.object({
  sysctl: optional(z.record(z.string(), z.string())),
  mac: macField,
  promisc: optional(z.boolean()),
  mtu: optional(z.int().min(0).max(0x7fffffff)),
  txQLen: optional(z.int().min(0).max(0x7fffffff)),
  allmulti: optional(z.boolean()),
  args: optional(z.object({ cni: withMac })),
  runtimeConfig: withMac,
});

/** What an interface is to become, or was: absent keys are left alone. */
interface InterfaceSettings {
  readonly mac?: string;
  readonly mtu?: number;
  readonly promisc?: boolean;
  readonly allmulti?: boolean;
  readonly txQLen?: number;
}

interface TuningConfig {
  readonly sysctls: readonly Sysctl[];
  readonly settings: InterfaceSettings;
}

/**
 * Chained type `tuning`: sysctls and properties of the attachment's interface. Properties are given back at DEL, sysctls belong to the pod and end with it,
 * as in the reference. `dataDir` is accepted: what was before is part of the attachment's record.
 */
export function createTuning(allowlist: string = allowlistPath): Plugin {
  const decode = (call: PluginCall) => decodeTuning(call, allowlist);
  return {
    add: (call) => add(call, decode(call)),
    del,
    check: (call) => check(call, decode(call)),
  };
}

function decodeTuning(call: PluginCall, allowlist: string): TuningConfig {
  const { runtimeConfig } = call;
  const where = { network: call.network, plugin: "tuning" };
  const config = decodeConfig(configField, { ...call.config, runtimeConfig }, where);
  const argument = decodeConfig(
    withMac,
    { mac: call.cniArgs.get("MAC") },
    { ...where, plugin: "tuning CNI_ARGS" },
  );
  const macs = [config.args?.cni?.mac, config.runtimeConfig?.mac, argument?.mac, config.mac];
  const sysctls = Object.entries(config.sysctl ?? {});
  requireAllowed(
    call,
    sysctls.map(([key]) => key),
    allowlist,
  );
  return {
    sysctls: sysctls.map(([key, value]) => ({ path: sysctlPath(call, key), value })),
    settings: withoutAbsent({
      mac: macs.find((mac) => mac !== undefined && mac !== "")?.toLowerCase(),
      mtu: config.mtu === 0 ? undefined : config.mtu,
      // As in the reference, false leaves it as it is.
      promisc: config.promisc === true ? true : undefined,
      allmulti: config.allmulti,
      txQLen: config.txQLen,
    }),
  };
}

async function add(call: PluginCall, { sysctls, settings }: TuningConfig): Promise<CniResult> {
  const result = call.prevResult;
  if (result === undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `tune network "${call.network}": tuning must follow a plugin that makes an interface ("prevResult" is missing)`,
    );
  }
  const sandbox = requireSandbox(call);
  writeSysctls(sandbox.netns, sysctls);
  const spelled = spelledByKernel(sandbox, sysctls);
  if (Object.keys(settings).length === 0) {
    if (Object.keys(spelled).length > 0) await call.state.save({ sysctl: spelled });
    return result;
  }
  const link = await requireInterface(call, sandbox);
  await call.state.save({ ...settingsOf(link, settings), sysctl: spelled });
  await apply(call, sandbox, { link, settings });
  if (settings.mac !== undefined && link.mac !== undefined) {
    await changeMacSpoofCheck(call, { from: link.mac, to: settings.mac });
  }
  return withSettings(call, result, settings);
}

async function requireInterface(call: PluginCall, sandbox: Sandbox): Promise<Link> {
  const link = await sandbox.rtnl.getLink({ name: call.ifName });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `tune interface "${call.ifName}" of network "${call.network}": there is no such interface in "${sandbox.path}"`,
  );
}

/** What of the link the settings are about to change. */
function settingsOf(link: Link, settings: InterfaceSettings): JsonObject {
  const present: InterfaceSettings = withoutAbsent({
    mac: link.mac,
    mtu: link.mtu,
    promisc: (link.flags & IFF_PROMISC) !== 0,
    allmulti: (link.flags & IFF_ALLMULTI) !== 0,
    txQLen: link.txQueueLength,
  });
  return Object.fromEntries(
    Object.entries(present).filter(([key]) => Object.hasOwn(settings, key)),
  );
}

async function apply(
  call: PluginCall,
  sandbox: Sandbox,
  { link, settings }: { readonly link: Link; readonly settings: InterfaceSettings },
): Promise<void> {
  const { txQLen: txQueueLength, mac, ...rest } = settings;
  try {
    if (mac !== undefined && mac !== link.mac) await changeMac(sandbox, link, mac);
    const change: LinkChange = withoutAbsent({ ...rest, txQueueLength });
    if (Object.keys(change).length > 0) await sandbox.rtnl.changeLink(link.index, change);
  } catch (error) {
    const what = Object.entries(settings).map(([key, value]) => `${key} ${value}`);
    throw asCniError(
      error,
      cniCode.ioFailure,
      `set ${what.join(", ")} of interface "${call.ifName}" of network "${call.network}"`,
    );
  }
}

/** Some drivers change their address only while the link is down; its routes would be lost, so that is the second choice. */
async function changeMac({ rtnl }: Sandbox, link: Link, mac: string): Promise<void> {
  try {
    await rtnl.changeLink(link.index, { mac });
  } catch (error) {
    if (errorCode(error) !== "EBUSY" && errorCode(error) !== "EADDRNOTAVAIL") throw error;
    await rtnl.changeLink(link.index, { up: false });
    await rtnl.changeLink(link.index, { mac });
    if (link.up) await rtnl.changeLink(link.index, { up: true });
  }
}

/** A result that told the MTU tells the new one: the CHECK of whoever told it would find a drift. */
function withSettings(
  call: PluginCall,
  result: CniResult,
  { mac, mtu }: InterfaceSettings,
): CniResult {
  const interfaces = result.interfaces.map((one) => {
    if (one.name !== call.ifName || one.sandbox === undefined || one.sandbox === "") return one;
    return {
      ...one,
      ...(mac === undefined ? {} : { mac }),
      ...(mtu === undefined || one.mtu === undefined ? {} : { mtu }),
    };
  });
  return { ...result, interfaces };
}

const stateField = z.object({
  mac: optional(z.string()),
  mtu: optional(z.int()),
  promisc: optional(z.boolean()),
  allmulti: optional(z.boolean()),
  txQLen: optional(z.int()),
  sysctl: optional(z.record(z.string(), z.string())),
});

function savedState(call: PluginCall): z.infer<typeof stateField> | undefined {
  const state = call.state.load();
  if (state === undefined) return undefined;
  return decodeConfig(stateField, state, { network: call.network, plugin: "saved tuning" });
}

async function del(call: PluginCall): Promise<void> {
  const state = savedState(call);
  if (state === undefined || call.sandbox === undefined) return;
  const { sysctl: _, ...before } = state;
  const settings: InterfaceSettings = withoutAbsent(before);
  if (Object.keys(settings).length === 0) return;
  const link = await call.sandbox.rtnl.getLink({ name: call.ifName });
  if (link === undefined) return;
  await apply(call, call.sandbox, { link, settings });
}

async function check(call: PluginCall, { sysctls, settings }: TuningConfig): Promise<void> {
  const sandbox = requireSandbox(call);
  const spelled = sysctls.length === 0 ? undefined : savedState(call)?.sysctl;
  for (const { path, value } of sysctls) {
    const present = readSysctl(sandbox.netns, path);
    if ((present ?? "") === (spelled?.[path] ?? value.trim())) continue;
    throw drift(call, `${path} is "${present ?? "missing"}" instead of "${value}"`);
  }
  if (Object.keys(settings).length === 0) return;
  const present = settingsOf(await requireInterface(call, sandbox), settings);
  for (const [key, value] of Object.entries(settings)) {
    if (present[key] !== value)
      throw drift(
        call,
        `${key} of interface "${call.ifName}" is ${present[key]} instead of ${value}`,
      );
  }
}
