import { isAllowed, mayCreateReview } from "../../../lib/api/attach-access.ts";
import { decodeNad } from "../../../lib/api/decode-objects.ts";
import { nadFaults } from "../../../lib/api/nad-rules.ts";
import { defaultConfinement } from "../../../lib/api/nad-rules-keys.ts";
import { annotations } from "../../../lib/api/names.ts";
import { accessFaults, sameSpec } from "../../../lib/api/object-rules.ts";
import type { Vetted } from "../../../lib/api/vet-keys.ts";
import { vetNetwork } from "../../../lib/api/vet-network.ts";
import { DecodeError, type Fault, formatFault } from "../../../lib/base/decode.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type Json, type JsonObject } from "../../../lib/base/json.ts";
import { decodeConflist, mostPlugins } from "../../../lib/cni/conflist.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import { parseJsonObject } from "../../../lib/cni/json-text.ts";
import { isServers, titleOf } from "./networks.ts";
import { annotationsOf } from "./pod-object.ts";
import type { AdmitContext } from "./pods.ts";
import { type AdmissionRequest, allowed, forbidden, invalid, type Verdict } from "./review.ts";

/** Milliseconds for the question who may write PodNetworks. */
const questionTimeout = 1_500;
const field = "spec.config";
/** Faults that a refusal of a tenant's NAD names. */
const mostTold = 20;

type NadContext = Pick<AdmitContext, "client" | "confinement" | "exempt" | "log">;

/**
 * Vets a NetworkAttachmentDefinition that is created or gets another configuration. Refused is what no node can attach, and, of people
 * who may not create PodNetworks, what the nodes don't permit in NADs of tenants; by the functions that the nodes use (spec B.1).
 */
export async function admitNad(context: NadContext, request: AdmissionRequest): Promise<Verdict> {
  const { operation, namespace, object, oldObject } = request;
  if (context.exempt.has(namespace)) return allowed;
  if (operation !== "CREATE" && operation !== "UPDATE") return allowed;
  const before = operation === "UPDATE" ? oldObject : undefined;
  const access = accessFaults(grantsOf(object), grantsOf(before));
  // A faulty one of before must stay writable, by whoever writes its metadata.
  if (before !== undefined && sameSpec(before, object)) {
    return access.length > 0 ? invalid(access) : allowed;
  }
  const { faults, warnings, plugins } = vetNad(object);
  const confined = confinedFaults(context, namespace, plugins);
  const refused = confined.length > 0 && (await isTenants(context, request));
  const all = [...faults, ...access, ...(refused ? confined : [])];
  if (faults.length + access.length > 0) return invalid(all);
  if (refused) {
    return forbidden([
      `${titleOf(request)}: ${confined.slice(0, mostTold).map(formatFault).join("; ")}`,
    ]);
  }
  const hints = confined.map((fault) => `pods can't list this one: ${formatFault(fault)}`);
  return { warnings: [...warnings.map(formatFault), ...hints] };
}

interface VettedNad extends Vetted {
  /** Those that can be read, whatever else is wrong. */
  readonly plugins: readonly JsonObject[];
}

function vetNad(object: unknown): VettedNad {
  const nad = withName(object);
  try {
    const { metadata, config } = decodeNad(nad).value;
    if (config === undefined) return { faults: [], warnings: [], plugins: [] };
    const { faults, plugins } = readConfig(config, metadata.name);
    if (faults.length > 0) return { faults, warnings: [], plugins };
    const spec = { enabled: true, provider: "", parametersRefs: [] };
    const at = (index: number) => `${field}: plugins[${index}]`;
    return { ...vetNetwork({ metadata, spec }, { plugins, at }), plugins };
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    const faults = error.faults.filter(({ path }) => !isServers(path));
    return { faults, warnings: [], plugins: [] };
  }
}

/** An object that is still to be named by the server is vetted as if it were. */
function withName(object: unknown): unknown {
  if (!isJsonObject(object)) return object;
  const { metadata } = object;
  if (!isJsonObject(metadata) || typeof metadata["name"] === "string") return object;
  return { ...object, metadata: { ...metadata, name: "to-be-named" } };
}

function readConfig(
  config: string,
  name: string,
): { readonly faults: readonly Fault[]; readonly plugins: readonly JsonObject[] } {
  try {
    return { faults: [], plugins: decodeConflist(config, { name }).plugins };
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    const messages = error.faults.length > 0 ? error.faults : [error.message];
    const faults = messages.map((message) => ({ path: field, message }));
    return { faults, plugins: rawPlugins(config) };
  }
}

function rawPlugins(config: string): readonly JsonObject[] {
  try {
    const whole = parseJsonObject(config, field);
    const { plugins } = whole;
    const list = Array.isArray(plugins) ? (plugins as readonly Json[]) : [whole];
    // As many as a configuration may have: what is beyond was refused already.
    return list.slice(0, mostPlugins).filter(isJsonObject);
  } catch {
    return [];
  }
}

function confinedFaults(
  { confinement = defaultConfinement }: NadContext,
  namespace: string,
  plugins: readonly JsonObject[],
): readonly Fault[] {
  if (confinement.trustedNadNamespaces.includes(namespace)) return [];
  return nadFaults(plugins, confinement).map(({ path, message }) => ({
    path: `${field}: ${path}`,
    message,
  }));
}

/**
 * Whether somebody writes it who may not create PodNetworks. Who may could have what a NAD must not by a PodNetwork that refers to it.
 * Where nobody can tell, or the nodes' rules are not known, the node decides.
 */
async function isTenants(
  { client, confinement, log }: NadContext,
  { userInfo }: AdmissionRequest,
): Promise<boolean> {
  if (confinement === undefined) return false;
  try {
    const answer = await client.request({
      method: "POST",
      path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      body: mayCreateReview(isJsonObject(userInfo) ? userInfo : {}),
      timeout: questionTimeout,
    });
    return isAllowed(answer) === false;
  } catch (error) {
    log.warn({ fault: errorText(error) }, "who writes a NAD is not known, left to the node");
    return false;
  }
}

/** Its annotations but the one that counts on PodNetworks only. */
function grantsOf(object: unknown): Readonly<Record<string, string>> {
  const { [annotations.access]: _, ...grants } = annotationsOf(object);
  return grants;
}
