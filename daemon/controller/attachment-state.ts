import type { Condition } from "./conditions.ts";
import { faultText, type KeptAttachment, type KeptNetwork } from "./kept-objects.ts";
import {
  type Decided,
  inUse,
  notReady,
  paramsCondition,
  paramsMissing,
  type UserCount,
  userText,
} from "./network-state.ts";
import type { Verdict } from "./params.ts";

/** What an attachment's conditions follow from. */
export interface AttachmentInput {
  readonly kept: KeptAttachment;
  /** Its PodNetwork; undefined: there is none. */
  readonly network: KeptNetwork | undefined;
  /** The PodNetwork's condition. */
  readonly networkReady: Condition | undefined;
  /** Of its own parameters, where it has some and they are podnet's business. */
  readonly verdict: Verdict | undefined;
  readonly users: UserCount;
  /** The pod that has its fixed addresses, and one that waits for them. */
  readonly holder?: string;
  readonly waiting?: string;
}

/** The conditions of a PodNetworkAttachment (spec A.2). */
export function decideAttachment(input: AttachmentInput): Decided {
  const { verdict, users } = input;
  const ready = attachmentReady(input);
  const params = verdict === undefined ? [] : [paramsCondition(verdict)];
  return { ready, conditions: [ready, ...params, inUseBy(input, users)] };
}

/** Whether pods can be attached through it now, and if not, why. */
export function attachmentReady(input: AttachmentInput): Condition {
  const { kept, network, networkReady, verdict, users } = input;
  if (kept.deleted !== undefined) {
    return notReady("Deleting", `is being deleted, ${userText(users)}`);
  }
  if (kept.object === undefined) return notReady("Invalid", faultText(kept.faults));
  const { podNetworkName: name, parametersRefs } = kept.object.spec;
  if (network === undefined || networkReady === undefined) {
    return notReady("PodNetworkNotReady", `PodNetwork "${name}" not found: create it`);
  }
  if (networkReady.status !== "True") {
    const { reason, message } = networkReady;
    const text = `PodNetwork "${name}" is not ready: ${reason}: ${message}`;
    return notReady("PodNetworkNotReady", text);
  }
  const provider = network.object?.spec.provider ?? "";
  const needed = parametersRefs.length > 0;
  const missing = paramsMissing(kept.conditions, verdict, { needed, provider });
  if (missing !== undefined) return notReady("ParamsNotReady", missing);
  return { type: "Ready", status: "True", reason: "Ready", message: "pods can be attached" };
}

/** With fixed addresses one pod has them; who else asks is told to wait. */
function inUseBy({ holder, waiting, verdict }: AttachmentInput, users: UserCount): Condition {
  const plain = inUse(users);
  if (holder === undefined) return plain;
  const fixed = verdict?.fixed.join(", ") ?? "";
  const others = waiting === undefined ? "" : `; pod ${waiting} waits for it`;
  return { ...plain, message: `pod ${holder} has ${fixed}${others}` };
}
