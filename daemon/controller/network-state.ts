import type { JsonObject } from "../../lib/base/json.ts";
import { type Condition, findCondition } from "./conditions.ts";
import { faultText, type KeptNetwork } from "./kept-objects.ts";
import { isOwnProvider, type Verdict } from "./params.ts";

/** Who uses a network or an attachment now. */
export interface UserCount {
  readonly pods: number;
  readonly attachments: number;
  /** One of them, for people: the first by name. */
  readonly example?: string;
}

/** What podnet says of an object, and whether its finalizer must stay. Most important first. */
export interface Decided {
  readonly conditions: readonly Condition[];
  readonly ready: Condition;
}

/**
 * The conditions of a PodNetwork (spec A.1.1). `verdict`: of its parameters; undefined where they are another provider's, whose
 * ParamsReady is read and never written.
 */
export function decideNetwork(
  kept: KeptNetwork,
  verdict: Verdict | undefined,
  users: UserCount,
): Decided {
  const params = paramsReady(kept, verdict);
  const ready = networkReady(kept, verdict, users);
  return { ready, conditions: [ready, ...params, inUse(users)] };
}

/** Whether pods can be attached to the network now, and if not, why. */
export function networkReady(
  kept: KeptNetwork,
  verdict: Verdict | undefined,
  users: UserCount,
): Condition {
  if (kept.deleted !== undefined) {
    return notReady("Deleting", `is being deleted, ${userText(users)}`);
  }
  if (kept.object === undefined) return notReady(faultReason(kept), faultText(kept.faults));
  const { enabled, provider, parametersRefs } = kept.object.spec;
  if (!enabled) return notReady("AdministrativelyDisabled", "spec.enabled is false");
  const needed = isOwnProvider(provider) || parametersRefs.length > 0;
  const missing = paramsMissing(kept.conditions, verdict, { needed, provider });
  if (missing !== undefined) return notReady("ParamsNotReady", missing);
  return { type: "Ready", status: "True", reason: "Ready", message: "pods can be attached" };
}

/** Faults of the parameters make them not ready; those of anything else make the object invalid. */
function faultReason({ faults }: KeptNetwork): string {
  return faults.every(({ path }) => /^spec\.parameters?(Refs)?\b/.test(path))
    ? "ParamsNotReady"
    : "Invalid";
}

/** What is said about parameters that are not ready; undefined when they are, or need not be. */
export function paramsMissing(
  conditions: readonly JsonObject[],
  verdict: Verdict | undefined,
  { needed, provider }: { readonly needed: boolean; readonly provider: string },
): string | undefined {
  if (verdict !== undefined) return verdict.ready ? undefined : verdict.message;
  const found = findCondition(conditions, "ParamsReady");
  if (found === undefined) {
    return needed ? `provider ${provider} has not said ParamsReady yet` : undefined;
  }
  if (found.status === "True") return undefined;
  return [`ParamsReady is ${found.status}`, found.reason, found.message]
    .filter((text) => text !== "")
    .join(": ");
}

function paramsReady(kept: KeptNetwork, verdict: Verdict | undefined): Condition[] {
  if (kept.object === undefined) {
    // Whose parameters they are can't be told where the object can't be read, but for what podnet alone checks.
    if (faultReason(kept) === "Invalid") return [];
    const reason = "ParametersInvalid";
    return [{ type: "ParamsReady", status: "False", reason, message: faultText(kept.faults) }];
  }
  return verdict === undefined ? [] : [paramsCondition(verdict)];
}

export function paramsCondition({ ready, reason, message }: Verdict): Condition {
  return { type: "ParamsReady", status: ready ? "True" : "False", reason, message };
}

export function notReady(reason: string, message: string): Condition {
  return { type: "Ready", status: "False", reason, message };
}

export function inUse(users: UserCount): Condition {
  const isUsed = users.pods + users.attachments > 0;
  return {
    type: "InUse",
    status: isUsed ? "True" : "False",
    reason: isUsed ? "InUse" : "NotInUse",
    message: userText(users),
  };
}

/** `in use by 2 pods (app/web-0, ...) and 1 PodNetworkAttachment` */
export function userText({ pods, attachments, example }: UserCount): string {
  const parts: string[] = [];
  if (pods > 0) parts.push(pods === 1 ? "1 pod" : `${pods} pods`);
  if (attachments > 0) {
    parts.push(
      attachments === 1 ? "1 PodNetworkAttachment" : `${attachments} PodNetworkAttachments`,
    );
  }
  if (parts.length === 0) return "not in use";
  const who = example === undefined ? "" : ` (${example}${pods + attachments > 1 ? ", ..." : ""})`;
  return `in use by ${parts.join(" and ")}${who}`;
}
