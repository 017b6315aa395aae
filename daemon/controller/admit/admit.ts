import { apiGroup, kinds, nadGroup } from "../../../lib/api/names.ts";
import { admitNad } from "./nads.ts";
import { admitNetwork, mutateNetwork } from "./networks.ts";
import { type AdmitContext, mutatePod, validatePod } from "./pods.ts";
import { type AdmissionRequest, allowed, type Verdict } from "./review.ts";

/** What the webhook is asked: by the path of its configuration. */
export const admissionPaths = { "/validate": "validate", "/mutate": "mutate" } as const;
export type AdmissionKind = (typeof admissionPaths)[keyof typeof admissionPaths];

/** Decides on one request. What podnet has no rules for is allowed. */
export async function admit(
  context: AdmitContext,
  kind: AdmissionKind,
  request: AdmissionRequest,
): Promise<Verdict> {
  const rules = request.subResource === "" ? rulesOf(request) : undefined;
  return (await rules?.[kind]?.(context, request)) ?? allowed;
}

type Rule = (context: AdmitContext, request: AdmissionRequest) => Verdict | Promise<Verdict>;
type Rules = { readonly [K in AdmissionKind]?: Rule };

const ofPods: Rules = { validate: validatePod, mutate: mutatePod };
const ofNetworks: Rules = {
  validate: (_, request) => admitNetwork(request),
  mutate: (_, request) => mutateNetwork(request),
};
const ofNads: Rules = { validate: admitNad };

function rulesOf({ group, kind }: AdmissionRequest): Rules | undefined {
  if (group === "") return kind === "Pod" ? ofPods : undefined;
  if (group === nadGroup) return kind === kinds.nad ? ofNads : undefined;
  if (group !== apiGroup) return undefined;
  return kind === kinds.podNetwork || kind === kinds.podNetworkAttachment ? ofNetworks : undefined;
}
