import type { JsonObject } from "../../lib/base/json.ts";

/** One network that will be attached to the sandbox. */
export interface PlannedAttachment {
  /** The network as people know it and as `podNetwork` tags it: `blue`, or `namespace/name` of a NAD. */
  readonly network: string;
  /** Name of the interface in the sandbox. */
  readonly ifName: string;
  /** The one that the runtime sees as the pod's network; exactly one, always the first. */
  readonly default: boolean;
  /** The network configuration as JSON text: its name is in it, and it is verbatim otherwise where it came as text. */
  readonly conflist: string;
  /** Capability arguments, before they are reduced to what a plugin declares. */
  readonly capabilityArgs: JsonObject;
  /** The selection's `cni-args`, for `args.cni` of each plugin configuration. */
  readonly cniArgs?: JsonObject;
}

/** Who owns the default route of one family. */
export interface DefaultRouteOwner {
  /** Index into the plan's attachments; undefined: nobody asked, the first attachment that brings one keeps it. */
  readonly attachment?: number;
  /** The gateway that the selection names; undefined: the attachment's own. */
  readonly gateway?: string;
  /** The family was asked for by name: a network that can't serve it is an error. */
  readonly strict: boolean;
}

/** Everything that an ADD will do, decided before the first effect. */
export interface Plan {
  /** In the order of attaching; the default one first. */
  readonly attachments: readonly PlannedAttachment[];
  readonly defaultRoute: { readonly v4: DefaultRouteOwner; readonly v6: DefaultRouteOwner };
}
