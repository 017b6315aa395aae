import { apiGroup, kinds } from "../../../lib/api/names.ts";
import { admitNetwork } from "./networks.ts";
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
  if (request.group === "" && request.kind === "Pod") {
    return kind === "mutate" ? mutatePod(context, request) : await validatePod(context, request);
  }
  const ours = request.kind === kinds.podNetwork || request.kind === kinds.podNetworkAttachment;
  if (kind === "mutate" || request.group !== apiGroup || !ours) return allowed;
  return request.subResource === "" ? admitNetwork(request) : allowed;
}
