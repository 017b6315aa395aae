import type { PodFacts } from "../../../lib/api/pod-rules.ts";
import { isJsonObject, type Json, type JsonObject } from "../../../lib/base/json.ts";
import type { AdmissionRequest } from "./review.ts";

/** A pod as a review has it: everything that admission reads. */
export interface ReviewedPod extends PodFacts {
  readonly serviceAccount: string;
  /** Scheduled already, or by whoever made it. */
  readonly nodeName: string;
  /** The mirror of a static pod: it runs whatever the API says. */
  readonly mirror: boolean;
  readonly hasAnnotations: boolean;
  /** undefined: the pod has no such list. */
  readonly gates: readonly string[] | undefined;
}

/** Never throws: what is not as the API has it counts as absent. */
export function readPod(value: unknown, { namespace }: AdmissionRequest): ReviewedPod {
  const pod = objectOf(value);
  const metadata = objectOf(pod["metadata"]);
  const spec = objectOf(pod["spec"]);
  const given = words(metadata["annotations"]);
  const gates = spec["schedulingGates"];
  return {
    namespace,
    annotations: given,
    hostNetwork: spec["hostNetwork"] === true,
    serviceAccount: text(spec["serviceAccountName"]),
    nodeName: text(spec["nodeName"]),
    mirror: Object.hasOwn(given, "kubernetes.io/config.mirror"),
    hasAnnotations: isJsonObject(metadata["annotations"]),
    gates: Array.isArray(gates)
      ? (gates as readonly Json[]).map((gate) => text(objectOf(gate)["name"]))
      : undefined,
  };
}

/** The annotations of any object. */
export function annotationsOf(value: unknown): Readonly<Record<string, string>> {
  return words(objectOf(objectOf(value)["metadata"])["annotations"]);
}

function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

function words(value: Json | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(objectOf(value)).filter(
      (entry): entry is [string, string] => typeof entry[1] === "string",
    ),
  );
}
