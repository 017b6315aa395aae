import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { Link, Route } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { PluginCall } from "../plugin.ts";
import { madeOn, requireSandbox } from "./made-link.ts";

/** RT_TABLE_MAIN and RTN_UNICAST of linux/rtnetlink.h. */
const mainTable = 254;
const unicast = 1;

/** A lower device, and the socket of the namespace that it lives in. */
export interface Master {
  readonly link: Link;
  readonly socket: Rtnetlink;
}

/** The configuration keys that choose a lower device. */
export interface MasterKeys {
  readonly master?: string | undefined;
  readonly linkInContainer?: boolean | undefined;
}

/**
 * Finds the lower device by name, or the one that the default route leaves by (IPv4 first, then the lowest metric), on the node or,
 * with `linkInContainer`, in the sandbox. Throws code 7 with what to do.
 */
export async function findMaster(call: PluginCall, keys: MasterKeys): Promise<Master> {
  const inSandbox = keys.linkInContainer === true;
  const socket = inSandbox ? requireSandbox(call).rtnl : call.host;
  const place = inSandbox ? "in the sandbox" : "on this node";
  const name = keys.master ?? "";
  const link = name === "" ? await defaultRouteLink(socket) : await socket.getLink({ name });
  if (link !== undefined) return { link, socket };
  throw new CniError(
    cniCode.invalidNetworkConfig,
    name === ""
      ? `network "${call.network}": no default route ${place}: set "master" to the interface to attach to`
      : `network "${call.network}": master "${name}": no such interface ${place}`,
  );
}

async function defaultRouteLink(socket: Rtnetlink): Promise<Link | undefined> {
  const routes = await socket.routes({ table: mainTable });
  const best = routes.filter(isDefault).sort(compareDefaults)[0];
  if (best?.index === undefined) return undefined;
  return socket.getLink({ index: best.index });
}

function isDefault(route: Route): boolean {
  if (route.table !== mainTable || route.type !== unicast || route.index === undefined)
    return false;
  return route.destination === "0.0.0.0/0" || route.destination === "::/0";
}

function compareDefaults(left: Route, right: Route): number {
  return left.family - right.family || (left.priority ?? 0) - (right.priority ?? 0);
}

/** What is wrong with the lower device that a link has; undefined when it is the one that it was made on, and has the name that the configuration gives. */
export async function masterDrift(
  call: PluginCall,
  keys: MasterKeys,
  link: Link,
): Promise<string | undefined> {
  const made = madeOn(call);
  if (made !== undefined && made !== link.link) return "it has another master than it was made on";
  const isNamed = keys.master !== undefined && keys.master !== "";
  // Where the default route leads may have changed since: what was made by it stays.
  if (!isNamed && made !== undefined) return undefined;
  const { link: master } = await findMaster(call, keys);
  return link.link === master.index ? undefined : `its master is not "${master.name}"`;
}

/** Throws code 7 when the MTU is larger than the lower device's. */
export function requireMtuFits(call: PluginCall, mtu: number | undefined, master: Link): void {
  if (mtu === undefined || mtu <= master.mtu) return;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": mtu ${mtu}: must be 0 to ${master.mtu}, the MTU of master "${master.name}"`,
  );
}
