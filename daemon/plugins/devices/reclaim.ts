import type { JsonObject } from "../../../lib/base/json.ts";
import { borrowedIn } from "./borrowed-state.ts";
import { type Claimant, claimsOfNode } from "./device-claims.ts";

/**
 * Claims a device again for the attachment that has borrowed it, by what its record remembers: the folder of the claims was removed. Nothing happens when the state is
 * not about a device, when that was given back, or when it is claimed. true: it was claimed.
 */
export function reclaimDevice(state: JsonObject, by: Claimant): boolean {
  const borrowed = borrowedIn(state);
  const claims = claimsOfNode();
  if (borrowed === undefined || borrowed.returned) return false;
  // Held: from here on this process makes up for the file when it is lost.
  if (claims.isHeldBy(borrowed.key, by) || claims.read(borrowed.key) !== undefined) return false;
  claims.take(borrowed.key, borrowed.before?.name ?? borrowed.key, by);
  return true;
}
