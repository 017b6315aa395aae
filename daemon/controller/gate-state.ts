import { schedulingGate } from "../../lib/api/names.ts";
import { readOwnList } from "../../lib/api/pod-selection.ts";
import { SelectionError } from "../../lib/api/selection.ts";
import {
  type NetworkStates,
  type Offender,
  offenders,
  type Readiness,
} from "../../lib/api/waiting.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { findCondition } from "./conditions.ts";
import { faultText, type KeptAttachment, type KeptNetwork } from "./kept-objects.ts";
import { type KeptPod, networksReadyCondition } from "./kept-pods.ts";
import type { Stores } from "./stores.ts";

/** A message names so many networks. */
const mostNamed = 10;

/** What has to be done about a pod that may have podnet's gate. */
export type GateDecision =
  | { readonly kind: "none" }
  /** `why`: what the condition and an event say. */
  | { readonly kind: "wait"; readonly reason: string; readonly why: string }
  | { readonly kind: "release" };

/** Decides it by the active rules (spec A.3.2). A list that can't be read keeps its pod waiting, with the reason: it would not start. */
export function decideGate(pod: KeptPod, namespace: string, states: NetworkStates): GateDecision {
  if (!pod.gates.includes(schedulingGate) || pod.deleting) return { kind: "none" };
  try {
    const found = offenders(readOwnList(pod.annotations, namespace), states);
    const [first] = found;
    if (first === undefined) return { kind: "release" };
    return { kind: "wait", reason: first.reason, why: sentence(found) };
  } catch (error) {
    if (!(error instanceof SelectionError)) throw error;
    return { kind: "wait", reason: "SelectionInvalid", why: error.message };
  }
}

function sentence(found: readonly Offender[]): string {
  const shown = found.slice(0, mostNamed).map(({ message }) => message);
  if (found.length > shown.length) shown.push(`and ${found.length - shown.length} more`);
  return shown.join("; ");
}

/** What pods wait for, as the watched copies have it. */
export function statesOf({
  networks,
  attachments,
}: Pick<Stores, "networks" | "attachments">): NetworkStates {
  return {
    podNetwork: (name) => {
      const kept = networks.get({ namespace: "", name });
      if (kept === undefined) return undefined;
      if (kept.object?.spec.enabled === false) return notReady("AdministrativelyDisabled");
      return readiness(kept);
    },
    attachment: (namespace, name) => {
      const kept = attachments.get({ namespace, name });
      if (kept === undefined) return undefined;
      return { podNetworkName: kept.object?.spec.podNetworkName, readiness: readiness(kept) };
    },
  };
}

/** Only a condition that says so makes it ready: who can't be told from one that nobody has looked at yet is not. */
function readiness(kept: KeptNetwork | KeptAttachment): Readiness {
  if (kept.deleted !== undefined) return notReady("it is being deleted");
  if (kept.object === undefined) return notReady(faultText(kept.faults));
  const condition = findCondition(kept.conditions, "Ready");
  if (condition?.status === "True") return { ready: true };
  if (condition === undefined) return notReady("it has no condition Ready yet");
  const { reason, message } = condition;
  return notReady([reason, message].filter((text) => text !== "").join(": "));
}

function notReady(why: string): Readiness {
  return { ready: false, why };
}

/** What the condition of a pod is to say. */
export interface PodCondition {
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message: string;
}

/** A patch of a pod's status with that condition; its time changes with its status only. */
export function conditionPatch(pod: KeptPod, condition: PodCondition, now: string): JsonObject {
  const isTransition = pod.networksReady?.status !== condition.status;
  return {
    metadata: { uid: pod.uid, resourceVersion: pod.version },
    status: {
      conditions: [
        {
          type: networksReadyCondition,
          ...condition,
          ...(isTransition ? { lastTransitionTime: now } : {}),
        },
      ],
    },
  };
}

/** A patch that takes the gate off this very version of the pod; the list is merged by the names in it. */
export function gatePatch({ uid, version }: KeptPod): JsonObject {
  return {
    metadata: { uid, resourceVersion: version },
    spec: { schedulingGates: [{ name: schedulingGate, $patch: "delete" }] },
  };
}
