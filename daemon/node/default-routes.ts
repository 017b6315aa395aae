import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { NetlinkError } from "../../lib/netlink/error.ts";
import type { Route } from "../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { DefaultRouteOwner, Plan } from "./plan.ts";
import type { AttachmentRecord } from "./record.ts";

/** Main routing table, RT_TABLE_MAIN of linux/rtnetlink.h. */
const mainTable = 254;
const anywhere = { 4: "0.0.0.0/0", 6: "::/0" } as const;

/** What settling works on: the attachments as they are attached, in a socket of the sandbox. */
export interface DefaultRouteWork {
  readonly rtnl: Rtnetlink;
  readonly attachments: readonly AttachmentRecord[];
  readonly plan: Plan;
}

/**
 * Leaves at most one default route a family in the sandbox: the owner's that the plan names, else that of the first attachment
 * which brought one. Routes of interfaces that podnet did not make stay. Throws code 7 when the owner's gateway can't be
 * reached or its network has none.
 */
export async function settleDefaultRoutes(work: DefaultRouteWork): Promise<void> {
  const { defaultRoute } = work.plan;
  const asked = [defaultRoute.v4, defaultRoute.v6].some((owner) => owner.attachment !== undefined);
  if (work.attachments.length < 2 && !asked) return;
  await settle(work, 4, defaultRoute.v4);
  await settle(work, 6, defaultRoute.v6);
}

async function settle(
  work: DefaultRouteWork,
  family: 4 | 6,
  owner: DefaultRouteOwner,
): Promise<void> {
  const routes = await defaultRoutes(work, family);
  if (owner.attachment === undefined) {
    const [first] = routes;
    if (first !== undefined) await removeOthers(work, routes, first.place);
    return;
  }
  await give(work, { family, owner, place: owner.attachment, routes });
}

interface PlacedRoute {
  /** Index of the attachment whose interface the route uses. */
  readonly place: number;
  readonly route: Route;
}

/** The family's default routes over interfaces of the attachments, in the order of the attachments. */
async function defaultRoutes(work: DefaultRouteWork, family: 4 | 6): Promise<PlacedRoute[]> {
  const routes = await work.rtnl.routes({ family, table: mainTable });
  const places = new Map<number, number>();
  for (const [place, { ifName }] of work.attachments.entries()) {
    const link = await work.rtnl.getLink({ name: ifName });
    if (link !== undefined) places.set(link.index, place);
  }
  const placed: PlacedRoute[] = [];
  for (const route of routes) {
    const place = route.index === undefined ? undefined : places.get(route.index);
    if (place !== undefined && isUnicastDefault(route)) placed.push({ place, route });
  }
  return placed.sort((a, b) => a.place - b.place);
}

/** RTN_UNICAST: the kernel's own "unreachable default" of IPv6 is not one. */
function isUnicastDefault(route: Route): boolean {
  return route.destination === anywhere[route.family] && route.type === 1;
}

async function removeOthers(
  work: DefaultRouteWork,
  routes: readonly PlacedRoute[],
  keeper: number,
): Promise<void> {
  for (const { place, route } of routes) {
    if (place !== keeper) await remove(work.rtnl, route);
  }
}

async function remove(rtnl: Rtnetlink, route: Route): Promise<void> {
  await rtnl.deleteRoute({
    destination: route.destination,
    table: route.table,
    ...(route.gateway === undefined ? {} : { gateway: route.gateway }),
    ...(route.index === undefined ? {} : { index: route.index }),
    ...(route.priority === undefined ? {} : { priority: route.priority }),
  });
}

interface Grant {
  readonly family: 4 | 6;
  readonly owner: DefaultRouteOwner;
  readonly place: number;
  readonly routes: readonly PlacedRoute[];
}

async function give(work: DefaultRouteWork, grant: Grant): Promise<void> {
  const attachment = work.attachments[grant.place];
  if (attachment === undefined) throw new RangeError(`default route of attachment ${grant.place}`);
  const own = grant.routes.filter(({ place }) => place === grant.place);
  const gateway =
    grant.owner.gateway ?? (own.length > 0 ? undefined : resultGateway(attachment, grant.family));
  if (own.length === 0 && gateway === undefined) {
    if (!grant.owner.strict) return;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `set default route on network "${attachment.network}" (${attachment.ifName}): it has no IPv${grant.family} gateway`,
    );
  }
  await removeOthers(work, grant.routes, gateway === undefined ? grant.place : -1);
  if (gateway !== undefined) await set(work, { attachment, family: grant.family, gateway });
}

function resultGateway(attachment: AttachmentRecord, family: 4 | 6): string | undefined {
  const isV6 = family === 6;
  return attachment.result?.ips
    .map((ip) => ip.gateway)
    .find((gateway) => gateway !== undefined && gateway.includes(":") === isV6);
}

async function set(
  work: DefaultRouteWork,
  to: { readonly attachment: AttachmentRecord; readonly family: 4 | 6; readonly gateway: string },
): Promise<void> {
  const { network, ifName } = to.attachment;
  const where = `set default route via "${to.gateway}" on network "${network}" (${ifName})`;
  const link = await work.rtnl.getLink({ name: ifName });
  if (link === undefined) {
    throw new CniError(cniCode.internal, `${where}: the interface is not in the sandbox`);
  }
  try {
    await work.rtnl.addRoute({
      destination: anywhere[to.family],
      gateway: to.gateway,
      index: link.index,
    });
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    const reason = error.kernelText ?? error.code;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `${where}: gateway can't be reached: ${reason}`,
      {
        cause: error,
      },
    );
  }
}
