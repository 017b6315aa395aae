import { isJsonObject, type Json } from "../../lib/base/json.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import type { PluginConfig } from "../../lib/cni/types.ts";

/** Whether a network's configuration says that its attachments come with a default route of that family: by its IPAM's routes, or as a default gateway. */
export function bringsDefaultRoute({ plugins }: Conflist, family: 4 | 6): boolean {
  return plugins.some((plugin) => hasRoute(plugin, family) || isGateway(plugin, family));
}

function hasRoute({ ipam }: PluginConfig, family: 4 | 6): boolean {
  const wanted = family === 4 ? "0.0.0.0/0" : "::/0";
  return objects(ipam?.["routes"]).some(({ dst }) => dst === wanted);
}

/** The families of a gateway are those of the addresses. */
function isGateway({ isDefaultGateway, ipam }: PluginConfig, family: 4 | 6): boolean {
  if (isDefaultGateway !== true) return false;
  const ranges = Array.isArray(ipam?.["ranges"]) ? ipam["ranges"].flat() : [];
  const given = [
    ipam?.["subnet"],
    ...objects(ranges).map(({ subnet }) => subnet),
    ...objects(ipam?.["addresses"]).map(({ address }) => address),
  ];
  return given.some((text) => typeof text === "string" && text.includes(":") === (family === 6));
}

function objects(list: Json | undefined) {
  return Array.isArray(list) ? (list as readonly Json[]).filter(isJsonObject) : [];
}
