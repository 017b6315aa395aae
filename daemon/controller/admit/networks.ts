import { decodePodNetwork, decodePodNetworkAttachment } from "../../../lib/api/decode-objects.ts";
import { defaultNetworkName, finalizer, kinds, quote } from "../../../lib/api/names.ts";
import {
  accessFaults,
  changedFaults,
  deletionFault,
  sameSpec,
} from "../../../lib/api/object-rules.ts";
import { DecodeError, type Fault, formatFault } from "../../../lib/base/decode.ts";
import { isJsonObject } from "../../../lib/base/json.ts";
import { annotationsOf } from "./pod-object.ts";
import { type AdmissionRequest, allowed, forbidden, invalid, type Verdict } from "./review.ts";

/** Static rules on PodNetworks and PodNetworkAttachments: what the CRDs' schemas can't say, or can't on older servers. */
export function admitNetwork(request: AdmissionRequest): Verdict {
  const { operation, kind, object, oldObject } = request;
  if (operation === "DELETE") {
    const fault = deletionFault(kind, nameOf(request));
    return fault === undefined ? allowed : forbidden([fault]);
  }
  if (operation === "UPDATE") return admitUpdate(kind, oldObject, object);
  if (operation !== "CREATE") return allowed;
  const { faults, warnings } = decoded(kind, object);
  const all = [...faults, ...accessFaults(annotationsOf(object))];
  return all.length > 0 ? invalid(all) : { warnings };
}

/**
 * Puts the finalizer on a network that is created: so it is protected from its first moment on, and the controller has only its
 * status left to write. `default` has none, as in the controller.
 */
export function mutateNetwork(request: AdmissionRequest): Verdict {
  const { operation, kind, object } = request;
  const metadata = isJsonObject(object) ? object["metadata"] : undefined;
  if (operation !== "CREATE" || !isJsonObject(metadata)) return allowed;
  if (kind === kinds.podNetwork && nameOf(request) === defaultNetworkName) return allowed;
  const path = "/metadata/finalizers";
  const present = metadata["finalizers"] ?? undefined;
  if (present === undefined) return { patch: [{ op: "add", path, value: [finalizer] }] };
  if (!Array.isArray(present) || present.includes(finalizer)) return allowed;
  return { patch: [{ op: "add", path: `${path}/-`, value: finalizer }] };
}

/** The object's own name. Where all objects of a kind are deleted at once, or a name is made by the server, the request has none. */
function nameOf({ name, object, oldObject }: AdmissionRequest): string {
  const whole = isJsonObject(oldObject) ? oldObject : object;
  const metadata = isJsonObject(whole) ? whole["metadata"] : undefined;
  const own = isJsonObject(metadata) ? metadata["name"] : undefined;
  return typeof own === "string" ? own : name;
}

/** A faulty object of before must stay writable: its finalizers go by updates too. */
function admitUpdate(kind: string, before: unknown, after: unknown): Verdict {
  const access = accessFaults(annotationsOf(after), annotationsOf(before));
  if (sameSpec(before, after)) return access.length > 0 ? invalid(access) : allowed;
  const changed = changedFaults(kind, before, after);
  const { faults, warnings } = decoded(kind, after);
  const all = [...changed, ...faults, ...access];
  return all.length > 0 ? invalid(all) : { warnings };
}

interface Decoding {
  readonly faults: readonly Fault[];
  readonly warnings: readonly string[];
}

/** An object that is still to be named by the server (generateName) is decoded as if it were. */
function decoded(kind: string, object: unknown): Decoding {
  const decode = kind === kinds.podNetwork ? decodePodNetwork : decodePodNetworkAttachment;
  try {
    const { warnings } = decode(object);
    return { faults: [], warnings: warnings.map((fault) => `${kind}: ${formatFault(fault)}`) };
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return { faults: error.faults.filter(({ path }) => !isServers(path)), warnings: [] };
  }
}

/** The server has checked the object's metadata already, and fills some of it in only now. */
export function isServers(path: string): boolean {
  return path === "metadata" || /^metadata[.[]/.test(path);
}

/** For people: `PodNetwork "blue"`. */
export function titleOf(request: AdmissionRequest): string {
  const { kind, namespace } = request;
  const name = nameOf(request);
  return `${kind} ${quote(namespace === "" ? name : `${namespace}/${name}`)}`;
}
