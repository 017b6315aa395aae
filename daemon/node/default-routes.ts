import { canonicalCidr } from "../../lib/base/ip.ts";
import { together } from "../../lib/base/together.ts";
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
  const [places, v4, v6] = await together([
    placesOf(work),
    work.rtnl.routes({ family: 4, table: mainTable }),
    work.rtnl.routes({ family: 6, table: mainTable }),
  ]);
  await settle(work, { family: 4, owner: defaultRoute.v4, routes: placed(v4, places) });
  await settle(work, { family: 6, owner: defaultRoute.v6, routes: placed(v6, places) });
}

interface Found {
  readonly family: 4 | 6;
  readonly owner: DefaultRouteOwner;
  readonly routes: readonly PlacedRoute[];
}

async function settle(work: DefaultRouteWork, found: Found): Promise<void> {
  const { owner, routes } = found;
  if (owner.attachment === undefined) {
    const [first] = routes;
    if (first === undefined) return;
    await removeOthers(work, routes, first.place);
    forgetOthers(work, found.family, first.place);
    return;
  }
  if (await give(work, { ...found, place: owner.attachment })) {
    forgetOthers(work, found.family, owner.attachment);
  }
}

/** Results must say what is: the runtime reads them, and CHECK compares the sandbox with them. */
function forgetOthers(work: DefaultRouteWork, family: 4 | 6, keeper: number): void {
  for (const [place, attachment] of work.attachments.entries()) {
    if (place !== keeper) setResultRoutes(attachment, family);
  }
}

/** Takes the family's default routes out of an attachment's result, and puts the one via `gateway` into it. */
function setResultRoutes(attachment: AttachmentRecord, family: 4 | 6, gateway?: string): void {
  const { result } = attachment;
  if (result === undefined) return;
  const kept = result.routes.filter(
    ({ dst, table = mainTable }) => table !== mainTable || canonicalCidr(dst) !== anywhere[family],
  );
  const added = gateway === undefined ? [] : [{ dst: anywhere[family], gw: gateway }];
  attachment.result = { ...result, routes: [...kept, ...added] };
}

interface PlacedRoute {
  /** Index of the attachment whose interface the route uses. */
  readonly place: number;
  readonly route: Route;
}

/** The attachments' places by the indices of their interfaces. */
async function placesOf(work: DefaultRouteWork): Promise<ReadonlyMap<number, number>> {
  const links = await together(
    work.attachments.map(({ ifName }) => work.rtnl.getLink({ name: ifName })),
  );
  const entries = links.map((link, place) => [link?.index ?? 0, place] as const);
  return new Map(entries.filter(([index]) => index > 0));
}

/** The default routes over interfaces of the attachments, in the order of the attachments. */
function placed(routes: readonly Route[], places: ReadonlyMap<number, number>): PlacedRoute[] {
  return routes
    .filter(isUnicastDefault)
    .map((route) => ({ place: places.get(route.index ?? 0) ?? -1, route }))
    .filter(({ place }) => place >= 0)
    .sort((a, b) => a.place - b.place);
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

interface Grant extends Found {
  readonly place: number;
}

/** Resolves with false when the owner has no gateway and need not have one: all stays as it is. */
async function give(work: DefaultRouteWork, grant: Grant): Promise<boolean> {
  const attachment = work.attachments[grant.place];
  if (attachment === undefined) throw new RangeError(`default route of attachment ${grant.place}`);
  const own = grant.routes.filter(({ place }) => place === grant.place);
  const gateway =
    grant.owner.gateway ?? (own.length > 0 ? undefined : resultGateway(attachment, grant.family));
  if (own.length === 0 && gateway === undefined) {
    if (!grant.owner.strict) return false;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `set default route on network "${attachment.network}" (${attachment.ifName}): it has no IPv${grant.family} gateway`,
    );
  }
  await removeOthers(work, grant.routes, gateway === undefined ? grant.place : -1);
  if (gateway !== undefined) {
    await set(work, { attachment, family: grant.family, gateway });
    setResultRoutes(attachment, grant.family, gateway);
  }
  return true;
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
