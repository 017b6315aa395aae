import { z } from "zod";
import { decode, type Fault, formatFault } from "../../../lib/base/decode.ts";

/** What is asked about one request of the API (admission.k8s.io/v1), as far as podnet reads it. */
export interface AdmissionRequest {
  readonly uid: string;
  readonly operation: string;
  /** `Pod`, with its group: `` or `podnet.dev`. */
  readonly kind: string;
  readonly group: string;
  /** Empty for objects of the whole cluster. */
  readonly namespace: string;
  readonly name: string;
  readonly subResource: string;
  /** Who asks, as authentication has it: user name, groups, uid, extra; not decoded. */
  readonly userInfo: unknown;
  /** Not decoded; undefined where the operation has none. */
  readonly object: unknown;
  readonly oldObject: unknown;
}

const word = z.string("must be a string").max(512, "must have at most 512 characters");
const optionalWord = word.nullish().transform((value) => value ?? "");

const reviewSchema = z.looseObject(
  {
    apiVersion: z.literal("admission.k8s.io/v1", "must be admission.k8s.io/v1"),
    kind: z.literal("AdmissionReview", "must be AdmissionReview"),
    request: z.looseObject(
      {
        uid: word.min(1, "must not be empty"),
        operation: z.enum(
          ["CREATE", "UPDATE", "DELETE", "CONNECT"],
          "must be CREATE, UPDATE, DELETE or CONNECT",
        ),
        kind: z.looseObject({ group: optionalWord, kind: word }, "must be an object"),
        namespace: optionalWord,
        name: optionalWord,
        subResource: optionalWord,
        userInfo: z.unknown().optional(),
        object: z.unknown().optional(),
        oldObject: z.unknown().optional(),
      },
      "must be an object",
    ),
  },
  "must be an AdmissionReview",
);

/** Decodes an AdmissionReview. Throws a DecodeError. */
export function decodeReview(value: unknown): AdmissionRequest {
  const { request } = decode(reviewSchema, value, "AdmissionReview");
  const { kind, object, oldObject, userInfo, ...words } = request;
  return {
    uid: words.uid,
    operation: words.operation,
    kind: kind.kind,
    group: kind.group,
    namespace: words.namespace,
    name: words.name,
    subResource: words.subResource,
    userInfo: userInfo ?? undefined,
    object: object ?? undefined,
    oldObject: oldObject ?? undefined,
  };
}

/** One step of a JSON Patch (RFC 6902). */
export interface PatchStep {
  readonly op: "add";
  readonly path: string;
  readonly value: unknown;
}

/** The answer to a review. */
export interface Verdict {
  /** HTTP status, reason and text of the refusal; undefined: it is allowed. */
  readonly refusal?: {
    readonly code: 403 | 422;
    readonly reason: "Forbidden" | "Invalid";
    readonly message: string;
    /** The faults one by one: kubectl shows these of an invalid object, and not the message. */
    readonly faults?: readonly Fault[];
  };
  /** Shown to whoever made the request. */
  readonly warnings?: readonly string[];
  readonly patch?: readonly PatchStep[];
}

export const allowed: Verdict = {};

/** Servers cut warnings of more than 256 characters and 4 KiB in all. */
const mostWarnings = 10;
const longestWarning = 256;
/** A list has 128 entries at most; each may have several faults. */
const mostFaults = 500;

/** Refuses what is wrong in itself, with every fault. */
export function invalid(faults: readonly Fault[]): Verdict {
  const shown = faults.slice(0, mostFaults).map(formatFault);
  if (faults.length > shown.length) shown.push(`and ${faults.length - shown.length} more`);
  const message = shown.join("; ");
  return {
    refusal: { code: 422, reason: "Invalid", message, faults: faults.slice(0, mostFaults) },
  };
}

/** Refuses what somebody may not do. */
export function forbidden(messages: readonly string[]): Verdict {
  return { refusal: { code: 403, reason: "Forbidden", message: messages.join("; ") } };
}

/** The AdmissionReview to answer a request with. */
export function encodeReview(request: AdmissionRequest, verdict: Verdict): string {
  const { refusal, warnings = [], patch = [] } = verdict;
  const shown = warnings
    .slice(0, mostWarnings)
    .map((text) =>
      text.length > longestWarning ? `${text.slice(0, longestWarning - 3)}...` : text,
    );
  const response = {
    uid: request.uid,
    allowed: refusal === undefined,
    ...(refusal === undefined ? {} : { status: statusOf(request, refusal) }),
    ...(shown.length === 0 ? {} : { warnings: shown }),
    ...(refusal !== undefined || patch.length === 0
      ? {}
      : {
          patchType: "JSONPatch",
          patch: Buffer.from(JSON.stringify(patch)).toString("base64"),
        }),
  };
  return JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response });
}

/** A metav1.Status. */
function statusOf(
  { kind, group, name }: AdmissionRequest,
  { code, reason, message, faults }: NonNullable<Verdict["refusal"]>,
): object {
  const causes = (faults ?? []).map((fault) => ({
    reason: "FieldValueInvalid",
    field: fault.path,
    message: fault.message,
  }));
  const details = { kind, group, name: name === "" ? "(to be named)" : name, causes };
  const more = faults === undefined ? {} : { details };
  return { status: "Failure", code, reason, message, ...more };
}
