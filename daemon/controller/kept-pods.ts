import { annotations } from "../../lib/api/names.ts";
import { isJsonObject, type Json, type JsonObject } from "../../lib/base/json.ts";

/** What is kept of a pod, any pod of the cluster: some hundred bytes. */
export interface KeptPod {
  readonly uid: string;
  readonly version: string;
  /** "" while nobody has said. */
  readonly phase: string;
  /** "" until it is scheduled. */
  readonly nodeName: string;
  readonly hostNetwork: boolean;
  readonly serviceAccount: string;
  /** It was deleted; its sandbox may still be there. */
  readonly deleting: boolean;
  /** RFC 3339 */
  readonly created: string;
  /** Those that select networks, and no others. */
  readonly annotations: Readonly<Record<string, string>>;
  /** Names of the networks that the node reported for it: PodNetworks, and NADs as `namespace/name`. */
  readonly attached: readonly string[];
  readonly gates: readonly string[];
  /** What the condition says that names the networks it waits for; undefined: it has none. */
  readonly networksReady?: { readonly status: string; readonly message: string };
}

/** The condition of pods that waited, or wait, for their networks. */
export const networksReadyCondition = "podnet.dev/NetworksReady";

const selecting = [
  annotations.networks,
  annotations.npwgNetworks,
  annotations.multusDefaultNetwork,
];

/** Texts that thousands of pods share are kept once. */
class Interner {
  readonly #known = new Map<string, string>();

  intern(text: string): string {
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    if (this.#known.size >= 20_000) this.#known.clear();
    this.#known.set(text, text);
    return text;
  }
}

const shared = new Interner();
const none: readonly string[] = [];
const noAnnotations: Readonly<Record<string, string>> = {};

/** Never throws: what is not as the API has it counts as absent. */
export function keepPod(pod: JsonObject): KeptPod {
  const metadata = objectOf(pod["metadata"]);
  const spec = objectOf(pod["spec"]);
  const given = objectOf(metadata["annotations"]);
  return {
    uid: text(metadata["uid"]),
    version: text(metadata["resourceVersion"]),
    phase: shared.intern(text(objectOf(pod["status"])["phase"])),
    nodeName: shared.intern(text(spec["nodeName"])),
    hostNetwork: spec["hostNetwork"] === true,
    serviceAccount: shared.intern(text(spec["serviceAccountName"])),
    deleting: text(metadata["deletionTimestamp"]) !== "",
    created: shared.intern(text(metadata["creationTimestamp"])),
    annotations: selection(given),
    attached: attachedOf(given),
    gates: gatesOf(spec["schedulingGates"]),
    ...networksReadyOf(pod["status"]),
  };
}

function networksReadyOf(status: Json | undefined): Pick<KeptPod, "networksReady"> {
  const { conditions } = objectOf(status);
  if (!Array.isArray(conditions)) return {};
  for (const one of conditions as readonly Json[]) {
    const condition = objectOf(one);
    if (condition["type"] !== networksReadyCondition) continue;
    const [found, message] = [text(condition["status"]), text(condition["message"])];
    return { networksReady: { status: found, message } };
  }
  return {};
}

/** Its sandbox is gone for good, or soon will be: it uses nothing. */
export function isFinished({ phase }: KeptPod): boolean {
  return phase === "Succeeded" || phase === "Failed";
}

function selection(given: JsonObject): Readonly<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const key of selecting) {
    const value = given[key];
    if (typeof value === "string") found[key] = shared.intern(value);
  }
  return Object.keys(found).length === 0 ? noAnnotations : found;
}

/** The names in podnet.dev/network-status; podnetd writes it, but a person may have. */
function attachedOf(given: JsonObject): readonly string[] {
  const status = given[annotations.networkStatus];
  if (typeof status !== "string" || status.length > 65_536) return none;
  try {
    const rows: unknown = JSON.parse(status);
    const names = (Array.isArray(rows) ? (rows as readonly unknown[]) : [])
      .map((row) => (isJsonObject(row) ? text(row["name"]) : ""))
      .filter((name) => name !== "");
    return [...new Set(names)].slice(0, 256).map((name) => shared.intern(name));
  } catch {
    return none;
  }
}

function gatesOf(gates: Json | undefined): readonly string[] {
  if (!Array.isArray(gates)) return none;
  return (gates as readonly Json[]).map((gate) => text(objectOf(gate)["name"]));
}

function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}
