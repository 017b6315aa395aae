import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";

/** A PodNetworkAttachment whose parameters give each user the same addresses. */
export interface FixedAttachment {
  readonly namespace: string;
  readonly name: string;
  readonly addresses: readonly string[];
}

/** Types with a key `mac` of their own. */
const macTypes: ReadonlySet<string> = new Set(["macvlan", "sriov", "tap", "tuning"]);

/**
 * Addresses that a configuration gives to whatever is attached by it: IP addresses of static address management, hardware
 * addresses, and those under `args.cni`. Two interfaces can't have them at once.
 */
export function fixedAddresses(plugins: readonly JsonObject[]): readonly string[] {
  return [...new Set(plugins.flatMap(ofPlugin))];
}

function ofPlugin({ type, ipam, mac, args }: JsonObject): string[] {
  const own = typeof type === "string" && macTypes.has(type) ? [mac] : [];
  const cni = isJsonObject(args) && isJsonObject(args["cni"]) ? args["cni"] : {};
  const fixed = isJsonObject(ipam) && ipam["type"] === "static" ? listOf(ipam["addresses"]) : [];
  const addresses = fixed.map((entry) => (isJsonObject(entry) ? entry["address"] : undefined));
  return [...own, cni["mac"], ...listOf(cni["ips"]), ...addresses].filter(
    (item) => typeof item === "string" && item !== "",
  ) as string[];
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : [];
}
