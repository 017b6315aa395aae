import { AttachmentReconciler } from "./attachment-reconciler.ts";
import type { ControllerContext, LeaderPart, Service } from "./context.ts";
import { DefaultNetwork } from "./default-network.ts";
import { LiveUsers } from "./live-users.ts";
import { NetworkReconciler } from "./network-reconciler.ts";

/** What the replica that leads does. */
export function leaderParts(context: ControllerContext): readonly LeaderPart[] {
  const live = new LiveUsers(context);
  return [
    new DefaultNetwork(context),
    new NetworkReconciler(context, live),
    new AttachmentReconciler(context, live),
  ];
}

/** What every replica runs. */
export function services(_context: ControllerContext): readonly Service[] {
  return [];
}
