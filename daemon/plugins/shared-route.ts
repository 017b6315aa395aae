import type { Route, RouteSpec } from "../../lib/netlink/model.ts";
import { withoutAbsent } from "./shared-config.ts";

/** What makes a route anew that the kernel reported; without what only the kernel says of it. */
export function routeSpecOf({ family: _family, flags: _flags, ...spec }: Route): RouteSpec {
  return withoutAbsent(spec);
}
