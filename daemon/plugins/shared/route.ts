import type { CniResult, CniRoute } from "../../../lib/cni/types.ts";
import type { Route, RouteSpec } from "../../../lib/netlink/model.ts";
import { withoutAbsent } from "./config.ts";

/** What makes a route anew that the kernel reported; without what only the kernel says of it. */
export function routeSpecOf({ family: _family, flags: _flags, ...spec }: Route): RouteSpec {
  return withoutAbsent(spec);
}

/** A result that says where its routes are after they were moved to other tables; undefined: a route was not. */
export function inTable(
  result: CniResult,
  tableOf: (route: CniRoute) => number | undefined,
): CniResult {
  const routes = result.routes.map((route) => {
    const table = route.table === undefined ? tableOf(route) : undefined;
    return table === undefined ? route : { ...route, table };
  });
  return { ...result, routes };
}
