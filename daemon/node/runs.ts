import { decodeConflist } from "../../lib/cni/conflist.ts";
import type { PluginConfig } from "../../lib/cni/types.ts";
import type { AttachmentRecord } from "./record.ts";

/** Types whose attachments touch nothing in the sandbox but their own interface, and on the node what attachments of other pods change at the same time too. */
const ownInterfaceOnly = new Set(["bridge", "dummy", "ipvlan", "macvlan"]);
const ownIpam = new Set(["host-local", "static"]);

/**
 * The attachments of a record in their order, in runs. Those of one run don't depend on one another and may be made, or given back, at the same time; each
 * run is over before the next begins. An attachment of any other type (executables, chains that change more than their interface, an interface on
 * top of one of the sandbox) is a run by itself.
 */
export function inRuns(attachments: readonly AttachmentRecord[]): readonly AttachmentRecord[][] {
  const runs: AttachmentRecord[][] = [];
  let open = false;
  for (const attachment of attachments) {
    const independent = isIndependent(attachment);
    const last = runs.at(-1);
    if (open && independent && last !== undefined) last.push(attachment);
    else runs.push([attachment]);
    open = independent;
  }
  return runs;
}

function isIndependent({ conflist }: AttachmentRecord): boolean {
  return decodeConflist(conflist).plugins.every(isOwnInterfaceOnly);
}

function isOwnInterfaceOnly(plugin: PluginConfig): boolean {
  const { type, ipam } = plugin;
  if (!ownInterfaceOnly.has(type) || plugin["linkInContainer"] === true) return false;
  if (ipam?.type === undefined || ipam.type === "") return true;
  // Of two routes to one destination the first counts, so routes come in the order of the networks.
  const routes = ipam["routes"];
  const hasRoutes = Array.isArray(routes) && routes.length > 0;
  return ownIpam.has(ipam.type) && !hasRoutes;
}
