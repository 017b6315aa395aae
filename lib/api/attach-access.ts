import { isJsonObject, type JsonObject } from "../base/json.ts";
import { annotations, apiGroup, quote } from "./names.ts";

/** What a PodNetwork's annotation `podnet.dev/access` says. */
export type AccessMode =
  /** Absent or empty: whoever may use the network by its grants. */
  | { readonly mode: "open" }
  /** Pods whose service account has the right to `attach` it. */
  | { readonly mode: "attach" }
  /** Nobody knows what was meant, so it opens nothing. `reason` follows a colon. */
  | { readonly mode: "faulty"; readonly reason: string };

/** Reads the annotation; one that can't be read opens nothing. */
export function accessMode(given: Readonly<Record<string, string>>): AccessMode {
  const text = Object.hasOwn(given, annotations.access) ? given[annotations.access] : undefined;
  const value = text?.trim() ?? "";
  if (value === "") return { mode: "open" };
  if (value === "attach") return { mode: "attach" };
  const reason = `annotation ${annotations.access}: ${quote(value)} must be "attach", or absent`;
  return { mode: "faulty", reason };
}

/** A service account of a namespace. */
export interface Attacher {
  readonly namespace: string;
  /** Empty: the namespace's `default`, as the API server has it. */
  readonly serviceAccount: string;
}

/** The user's name that the service account has for the API server. */
export function userName({ namespace, serviceAccount }: Attacher): string {
  return `system:serviceaccount:${namespace}:${serviceAccount || "default"}`;
}

/**
 * A SubjectAccessReview (authorization.k8s.io/v1): may the pod's service account attach pods to the PodNetwork? The right is one of
 * RBAC: verb `attach` on podnetworks of podnet.dev, by name or for all.
 */
export function attachReview(attacher: Attacher, network: string): JsonObject {
  const { namespace } = attacher;
  return {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: {
      user: userName(attacher),
      groups: [
        "system:serviceaccounts",
        `system:serviceaccounts:${namespace}`,
        "system:authenticated",
      ],
      resourceAttributes: {
        group: apiGroup,
        resource: "podnetworks",
        name: network,
        verb: "attach",
      },
    },
  };
}

/**
 * A SubjectAccessReview: may whoever made a request create PodNetworks? `user` is the `userInfo` of an AdmissionReview, whose keys are
 * those of the other review but for the name.
 */
export function mayCreateReview({ username, groups, uid, extra }: JsonObject): JsonObject {
  return {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: {
      user: typeof username === "string" ? username : "",
      groups: Array.isArray(groups) ? groups : [],
      ...(typeof uid === "string" ? { uid } : {}),
      ...(isJsonObject(extra) ? { extra } : {}),
      resourceAttributes: { group: apiGroup, resource: "podnetworks", verb: "create" },
    },
  };
}

/** Whether the answer to the review says yes; undefined: it is no answer. */
export function isAllowed(answer: unknown): boolean | undefined {
  const status = isJsonObject(answer) ? answer["status"] : undefined;
  if (!isJsonObject(status) || typeof status["allowed"] !== "boolean") return undefined;
  return status["allowed"] && status["denied"] !== true;
}

/** Why it was refused, and what to do; follows a colon. */
export function attachRefusal({ namespace, serviceAccount }: Attacher, network: string): string {
  const account = `service account "${namespace}/${serviceAccount || "default"}"`;
  return `${account} may not attach pods to it: grant it the verb "attach" on podnetworks.${apiGroup} ${quote(network)}`;
}
