import type { NadConfinement } from "../../../lib/api/nad-rules-keys.ts";
import { annotations, schedulingGate } from "../../../lib/api/names.ts";
import { awaited, checkPod, populated, selectionChanges } from "../../../lib/api/pod-rules.ts";
import { formatFault } from "../../../lib/base/decode.ts";
import type { ControllerContext } from "../context.ts";
import { annotationsOf, type ReviewedPod, readPod } from "./pod-object.ts";
import {
  type AdmissionRequest,
  allowed,
  forbidden,
  invalid,
  type PatchStep,
  type Verdict,
} from "./review.ts";
import { rightsFaults } from "./rights.ts";

/** What admission of pods works with. */
export interface AdmitContext extends Pick<ControllerContext, "client" | "stores" | "log"> {
  /** Namespaces whose pods are none of podnet's business: the system's and its own. */
  readonly exempt: ReadonlySet<string>;
  /** The server knows scheduling gates. */
  readonly gates: () => boolean;
  /** What the nodes permit in NADs of tenants; undefined: nobody said, and podnetd's defaults are no more than a hint. */
  readonly confinement?: NadConfinement;
}

/** Validates a pod that is created, and refuses changes of its selection afterwards (spec A.3.1, B.2). */
export async function validatePod(
  context: AdmitContext,
  request: AdmissionRequest,
): Promise<Verdict> {
  const { operation, object, oldObject } = request;
  if (context.exempt.has(request.namespace)) return allowed;
  if (operation === "UPDATE") {
    const changes = selectionChanges(annotationsOf(oldObject), annotationsOf(object));
    return changes.length > 0 ? invalid(changes) : allowed;
  }
  if (operation !== "CREATE") return allowed;
  const pod = readPod(object, request);
  const { faults, warnings } = checkPod(pod);
  // The kubelet runs a static pod in any case, and podnetd needs its mirror to see what is wrong.
  if (pod.mirror) return { warnings: [...faults.map(formatFault), ...warnings] };
  if (faults.length > 0) return invalid(faults);
  if (pod.hostNetwork) return { warnings };
  const refused = await rightsFaults(context, pod);
  return refused.length > 0 ? forbidden(refused) : { warnings };
}

/** Fills in the default network, or holds a pod back that lists networks itself (spec A.3.2, A.3.3). An invalid one is left as it is. */
export function mutatePod(context: AdmitContext, request: AdmissionRequest): Verdict {
  const { operation, object, namespace } = request;
  if (operation !== "CREATE" || context.exempt.has(namespace)) return allowed;
  const pod = readPod(object, request);
  if (pod.mirror || checkPod(pod).faults.length > 0) return allowed;
  const { stores } = context;
  const ofNamespace = stores.namespaces.get({ namespace: "", name: namespace })?.annotations ?? {};
  const text = populated(pod, {
    namespaceAnnotations: ofNamespace,
    exists: (name) => stores.networks.get({ namespace: "", name }) !== undefined,
  });
  if (text !== undefined) return { patch: [annotate(pod, text)] };
  const waits = context.gates() && pod.nodeName === "" && awaited(pod, ofNamespace).length > 0;
  return waits ? { patch: gate(pod) } : allowed;
}

function annotate({ hasAnnotations }: ReviewedPod, text: string): PatchStep {
  const key = annotations.networks;
  if (!hasAnnotations) return { op: "add", path: "/metadata/annotations", value: { [key]: text } };
  return { op: "add", path: `/metadata/annotations/${key.replaceAll("/", "~1")}`, value: text };
}

function gate({ gates }: ReviewedPod): PatchStep[] {
  const value = { name: schedulingGate };
  if (gates === undefined) return [{ op: "add", path: "/spec/schedulingGates", value: [value] }];
  if (gates.includes(schedulingGate)) return [];
  return [{ op: "add", path: "/spec/schedulingGates/-", value }];
}
