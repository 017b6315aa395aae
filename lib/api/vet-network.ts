import type { Fault } from "../base/decode.ts";
import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import { defaultNetworkName, quote, resourceNameOf } from "./names.ts";
import type { PodNetwork } from "./objects.ts";
import { declares, vetAddresses } from "./vet-addresses.ts";
import { isKnownIpam, isOwnType, type Vetted, vetKeys } from "./vet-keys.ts";

/** Types that change what a plugin before them has made. */
const chained: ReadonlySet<string> = new Set(["bandwidth", "portmap", "sbr", "tuning", "vrf"]);

/** A network's configuration as its plugins, and where each stands. */
export interface NetworkConfiguration {
  readonly plugins: readonly JsonObject[];
  /** Path of the plugin of that place, for faults: `spec.parameters.plugins[1]`. */
  readonly at: (index: number) => string;
}

/** The plugins of inline parameters: one configuration, or a list. What is no object was refused when the object was decoded. */
export function pluginsOf(parameters: JsonObject, path: string): NetworkConfiguration {
  const { plugins } = parameters;
  if (!Array.isArray(plugins)) return { plugins: [parameters], at: () => path };
  const list = (plugins as readonly Json[]).filter(isJsonObject);
  return { plugins: list, at: (index) => `${path}.plugins[${index}]` };
}

/** Characters of a configuration that is looked at here: ranges are compared with each other, and tenants write NADs. */
const longestVetted = 65_536;

/**
 * What can be said of a network's configuration without a node: types and keys, address ranges, whether `ipam4` and `ipam6` can
 * hold. A fault means that no node can attach by it.
 */
export function vetNetwork(
  network: Pick<PodNetwork, "metadata" | "spec">,
  configuration: NetworkConfiguration,
): Vetted {
  const { plugins, at } = configuration;
  const { length } = JSON.stringify(plugins);
  if (length > longestVetted) {
    const message = `has ${length} characters, too many to be looked at before a pod uses it`;
    return { faults: [], warnings: [{ path: at(0), message }] };
  }
  const each = plugins.map((plugin, index) => vetKeys(plugin, at(index)));
  const addresses = vetAddresses(plugins, at);
  const faults = [
    ...each.flatMap((one) => one.faults),
    ...plugins.flatMap((plugin, index) => placeFaults(plugin, index, at(index))),
    ...plugins.flatMap((plugin, index) => missingKeys(network, plugin, at(index))),
    ...plugins.flatMap((plugin, index) => hostLocalFault(network, plugin, at(index))),
    ...addresses.faults,
    ...familyFaults(network, configuration, addresses.families),
  ];
  return { faults, warnings: [...each.flatMap((one) => one.warnings), ...addresses.warnings] };
}

function placeFaults({ type }: JsonObject, index: number, path: string): Fault[] {
  const fault = (message: string): Fault[] => [{ path: `${path}.type`, message }];
  if (type === "podnet") return fault("podnet can't delegate to itself: name another plugin");
  if (index > 0 || typeof type !== "string" || !chained.has(type)) return [];
  return fault(`${quote(type)} changes an interface that a plugin before it must make`);
}

function missingKeys(
  { metadata }: Pick<PodNetwork, "metadata">,
  plugin: JsonObject,
  path: string,
): Fault[] {
  const has = (key: string) => !["", null, undefined].includes(plugin[key] as string | null);
  const missing = (key: string): Fault[] =>
    has(key) ? [] : [{ path: `${path}.${key}`, message: "missing" }];
  switch (plugin["type"]) {
    case "vlan":
      return missing("master");
    case "vrf":
      return missing("vrfname");
    case "host-device": {
      const named = ["device", "hwaddr", "kernelpath", "pciBusID", "deviceID"].some(has);
      const given = declares(plugin["capabilities"], "deviceID");
      if (named || given || resourceNameOf(metadata.annotations).name !== undefined) return [];
      return [{ path: `${path}.device`, message: "missing: name the device" }];
    }
    default:
      return [];
  }
}

/** Addresses to give out may also come from the runtime or from the node's podCIDRs (see familyFaults). */
function hostLocalFault(
  { spec }: Pick<PodNetwork, "spec">,
  { ipam, capabilities }: JsonObject,
  path: string,
): Fault[] {
  if (spec.ipam4 === "kubernetes" || spec.ipam6 === "kubernetes") return [];
  if (!isJsonObject(ipam) || ipam["type"] !== "host-local") return [];
  const { ranges, subnet } = ipam;
  if (subnet !== undefined || (Array.isArray(ranges) && ranges.length > 0)) return [];
  if (declares(capabilities, "ipRanges")) return [];
  return [{ path: `${path}.ipam.ranges`, message: noRange }];
}

const noRange =
  'missing: there is no range to give addresses from, as in [[{"subnet": "10.1.0.0/24"}]]';

type Families = ReadonlySet<4 | 6> | undefined;

function familyFaults(
  network: Pick<PodNetwork, "metadata" | "spec">,
  configuration: NetworkConfiguration,
  families: Families,
): Fault[] {
  const isClear = families !== undefined && configuration.plugins.every(isPredictable);
  return ([4, 6] as const).flatMap((family) => {
    const field = `ipam${family}` as const;
    const mode = network.spec[field];
    const fault = (message: string): Fault[] => [{ path: `spec.${field}`, message }];
    if (mode === "kubernetes") return nodeRangeFaults(network, configuration, { family, families });
    if (!isClear) return [];
    if (mode === "external" && !families.has(family)) {
      return fault(
        `"external" promises an IPv${family} address, and the ipam of the network has none to give`,
      );
    }
    if (mode === "none" && families.has(family)) {
      return fault(`"none" excludes IPv${family} addresses, and the ipam of the network gives one`);
    }
    return [];
  });
}

/** Whether the result's addresses can be told from the configuration. */
function isPredictable({ type, ipam }: JsonObject): boolean {
  const known =
    !isJsonObject(ipam) ||
    ["", undefined].includes(ipam["type"] as string | undefined) ||
    isKnownIpam(String(ipam["type"]));
  return known && typeof type === "string" && isOwnType(type);
}

/** The node puts its own podCIDR into the first plugin's host-local, for the default network only. */
function nodeRangeFaults(
  { metadata }: Pick<PodNetwork, "metadata">,
  { plugins, at }: NetworkConfiguration,
  { family, families }: { readonly family: 4 | 6; readonly families: Families },
): Fault[] {
  const path = `spec.ipam${family}`;
  if (metadata.name !== defaultNetworkName) {
    const message = `"kubernetes" is for the PodNetwork "${defaultNetworkName}" only: use "external"`;
    return [{ path, message }];
  }
  const ipam = plugins[0]?.["ipam"];
  const type = isJsonObject(ipam) ? ipam["type"] : undefined;
  if (type !== undefined && type !== "" && type !== "host-local") {
    return [
      { path: `${at(0)}.ipam.type`, message: `must be "host-local": ${path} is "kubernetes"` },
    ];
  }
  if (families?.has(family) !== true) return [];
  const message = `"kubernetes" takes the node's IPv${family} range, and ipam has one of its own: remove one`;
  return [{ path, message }];
}
