import { AdmissionService } from "./admit/service.ts";
import { AttachmentReconciler } from "./attachment-reconciler.ts";
import type { ControllerContext, LeaderPart, Service } from "./context.ts";
import { DefaultNetwork } from "./default-network.ts";
import { Gates } from "./gates.ts";
import { LiveUsers } from "./live-users.ts";
import { NetworkReconciler } from "./network-reconciler.ts";

/** What the replica that leads does. */
export function leaderParts(context: ControllerContext): readonly LeaderPart[] {
  const live = new LiveUsers(context);
  return [
    new DefaultNetwork(context),
    new NetworkReconciler(context, live),
    new AttachmentReconciler(context, live),
    new Gates(context),
  ];
}

/** What every replica runs. */
export function services(context: ControllerContext): readonly Service[] {
  const { webhook } = context.config;
  return webhook === undefined ? [] : [new AdmissionService(context, webhook)];
}
