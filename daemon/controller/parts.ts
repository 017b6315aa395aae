import type { ControllerContext, LeaderPart, Service } from "./context.ts";

/** What the replica that leads does. */
export function leaderParts(_context: ControllerContext): readonly LeaderPart[] {
  return [];
}

/** What every replica runs. */
export function services(_context: ControllerContext): readonly Service[] {
  return [];
}
