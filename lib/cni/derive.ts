import { isJsonObject, type JsonObject } from "../base/json.ts";
import type { Conflist } from "./conflist.ts";
import { encodeResult } from "./result.ts";
import type { CniResult, CniVersion, PluginConfig, ValidAttachment } from "./types.ts";

/** Keys that podnet or the runtime fills in; what a configuration says there itself is replaced. */
export interface DerivedKeys {
  readonly name: string;
  readonly cniVersion: CniVersion;
  /** Capability arguments, reduced to what the plugin declares (`runtimeConfigFor`); left out when empty. */
  readonly runtimeConfig?: JsonObject;
  readonly prevResult?: CniResult | undefined;
  /** GC only. */
  readonly validAttachments?: readonly ValidAttachment[];
}

/**
 * The configuration that one plugin gets on stdin (CNI 1.1.0, "Deriving request configuration from plugin configuration
 * objects"): the plugin object with every key that it has, the network's name and version, `prevResult` in that version, and
 * `runtimeConfig`; without `capabilities`. Throws a CniError (code 1) when `prevResult` can't be written in the version.
 */
export function deriveConfig(plugin: PluginConfig, keys: DerivedKeys): JsonObject {
  const { capabilities, prevResult: _, ...config } = plugin;
  const { name, cniVersion, runtimeConfig = {}, prevResult, validAttachments } = keys;
  return {
    ...config,
    name,
    cniVersion,
    ...(Object.keys(runtimeConfig).length === 0 ? {} : { runtimeConfig }),
    ...(prevResult === undefined ? {} : { prevResult: encodeResult(prevResult, cniVersion) }),
    ...(validAttachments === undefined ? {} : attachmentKeys(validAttachments)),
  };
}

/** The capability arguments that the plugin declares (`"capabilities": {"ips": true}`). */
export function runtimeConfigFor(plugin: PluginConfig, capabilityArgs: JsonObject): JsonObject {
  const declared = Object.entries(capabilityArgs).filter(([name]) => declares(plugin, name));
  return Object.fromEntries(declared);
}

/** The capability arguments that no plugin of the chain declares: asking for them must fail (NPWG multi-net-spec 1.3). */
export function undeclaredCapabilities(
  list: Conflist,
  capabilityArgs: JsonObject,
): readonly string[] {
  return Object.keys(capabilityArgs).filter(
    (name) => !list.plugins.some((plugin) => declares(plugin, name)),
  );
}

/** Whether a plugin declares a capability. */
export function declares(plugin: PluginConfig, name: string): boolean {
  const { capabilities } = plugin;
  return isJsonObject(capabilities) && capabilities[name] === true;
}

/**
 * Gives a plugin the id of its device in its configuration, for those that do not declare the capability `deviceID`: as `deviceID`, and
 * the address of a PCI device as `pciBusID` too. What the configuration says there itself is replaced.
 */
export function withDeviceId(plugin: PluginConfig, id: string | undefined): PluginConfig {
  if (id === undefined) return plugin;
  const isPci = /^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$/i.test(id);
  return { ...plugin, deviceID: id, ...(isPci ? { pciBusID: id } : {}) };
}

/** Merges a selection's `cni-args` into `args.cni`; where both have a key the selection wins (NPWG multi-net-spec 1.3, `cni-args`). */
export function mergeCniArgs(plugin: PluginConfig, cniArgs: JsonObject | undefined): PluginConfig {
  if (cniArgs === undefined || Object.keys(cniArgs).length === 0) return plugin;
  const args = isJsonObject(plugin["args"]) ? plugin["args"] : {};
  const own = isJsonObject(args["cni"]) ? args["cni"] : {};
  return { ...plugin, args: { ...args, cni: { ...own, ...cniArgs } } };
}

/** The second, misnamed key is what the CNI project's library sent at first; some plugins still read it. */
function attachmentKeys(valid: readonly ValidAttachment[]): JsonObject {
  const list = valid.map(({ containerID, ifname }) => ({ containerID, ifname }));
  return { "cni.dev/valid-attachments": list, "cni.dev/attachments": list };
}
