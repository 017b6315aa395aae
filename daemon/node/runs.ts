import { type Cidr, isCidr, overlaps, parseCidr } from "../../lib/base/ip.ts";
import { isJsonObject } from "../../lib/base/json.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import type { PluginConfig } from "../../lib/cni/types.ts";
import type { AttachmentRecord } from "./record.ts";

/** Types whose attachments touch nothing in the sandbox but their own interface, and on the node what attachments of other pods change at the same time too. */
const ownInterfaceOnly = new Set([
  "bridge",
  "dummy",
  "host-device",
  "ipvlan",
  "macvlan",
  "ptp",
  "sriov",
  "tap",
  "vlan",
  // Chained: they change the interface that the plugin before them made, or the node.
  "bandwidth",
  "portmap",
  "tuning",
]);
const ownIpam = new Set(["host-local", "static"]);

/**
 * The attachments of a record in their order, in runs. Those of one run don't depend on one another and may be made, or given back, at the same time; each
 * run is over before the next begins. An attachment that others may depend on (executables, chains that change more than their interface, an interface on
 * top of one of the sandbox) is a run by itself, and one that has to do with another of its run begins a new one.
 */
export function inRuns(attachments: readonly AttachmentRecord[]): readonly AttachmentRecord[][] {
  const runs: { readonly attachments: AttachmentRecord[]; readonly footprints: Footprint[] }[] = [];
  let open = false;
  for (const attachment of attachments) {
    const footprint = footprintOf(attachment);
    const last = runs.at(-1);
    const joins =
      open &&
      footprint !== undefined &&
      last?.footprints.every((other) => !touch(other, footprint)) === true;
    if (joins) {
      last.attachments.push(attachment);
      last.footprints.push(footprint);
    } else {
      runs.push({ attachments: [attachment], footprints: footprint ? [footprint] : [] });
    }
    open = footprint !== undefined;
  }
  return runs.map((run) => run.attachments);
}

/** What an attachment that depends on no other may yet share with one. */
interface Footprint {
  /** Of two interfaces in one subnet the first is the one that its hosts are reached by. */
  readonly subnets: readonly Cidr[];
  /** Interfaces of the node that it takes away, and those that it builds on. */
  readonly takes: readonly string[];
  readonly uses: readonly string[];
}

/** undefined: others may depend on it, or it on others. */
function footprintOf({ conflist, capabilityArgs }: AttachmentRecord): Footprint | undefined {
  const { plugins } = decodeConflist(conflist);
  if (!plugins.every(isOwnInterfaceOnly) || "ipRanges" in capabilityArgs) return undefined;
  const keys = (key: string): string[] =>
    plugins.flatMap((plugin) => (typeof plugin[key] === "string" ? [plugin[key]] : []));
  return {
    subnets: plugins.flatMap(({ ipam }) => subnetsOf(ipam)),
    takes: keys("device"),
    uses: [...keys("master"), ...keys("bridge")],
  };
}

function touch(one: Footprint, two: Footprint): boolean {
  const shares = (left: readonly string[], right: readonly string[]): boolean =>
    left.some((name) => right.includes(name));
  return (
    one.subnets.some((left) => two.subnets.some((right) => overlaps(left, right))) ||
    shares(one.takes, [...two.takes, ...two.uses]) ||
    shares(one.uses, two.takes)
  );
}

/** Every subnet that an IPAM configuration speaks of, wherever it stands. */
function subnetsOf(ipam: unknown): Cidr[] {
  if (Array.isArray(ipam)) return ipam.flatMap(subnetsOf);
  if (!isJsonObject(ipam)) return [];
  return Object.entries(ipam).flatMap(([key, value]) => {
    const names = key === "subnet" || key === "address";
    if (!names || typeof value !== "string" || !isCidr(value)) return subnetsOf(value);
    return [parseCidr(value)];
  });
}

function isOwnInterfaceOnly(plugin: PluginConfig): boolean {
  const { type, ipam } = plugin;
  if (!ownInterfaceOnly.has(type) || plugin["linkInContainer"] === true) return false;
  // tap's bridge is one of the sandbox; sysctls may concern any of its interfaces.
  if (type === "tap" && hasText(plugin, "bridge")) return false;
  if (type === "tuning" && plugin["sysctl"] !== undefined) return false;
  if (ipam?.type === undefined || ipam.type === "") return true;
  // Of two routes to one destination the first counts, so routes come in the order of the networks.
  const routes = ipam["routes"];
  const hasRoutes = Array.isArray(routes) && routes.length > 0;
  return ownIpam.has(ipam.type) && !hasRoutes;
}

function hasText(plugin: PluginConfig, key: string): boolean {
  const value = plugin[key];
  return typeof value === "string" && value !== "";
}
