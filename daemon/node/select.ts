import { networksArg, podAnnotationsCapability } from "../../lib/api/names.ts";
import { selectByAnnotations } from "../../lib/api/pod-selection.ts";
import { mostFaultsShown, type Selection, SelectionError } from "../../lib/api/selection.ts";
import { readSelectionList, readShortForm } from "../../lib/api/selection-list.ts";
import { formatFault } from "../../lib/base/decode.ts";
import { isJsonObject, type JsonObject } from "../../lib/base/json.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";

/** What a request says about networks. */
export interface SelectInput {
  /** podnet's own CNI configuration as the runtime sent it, with `runtimeConfig` and perhaps `networks`. */
  readonly config: JsonObject;
  /** CNI_ARGS, decoded. */
  readonly args: ReadonlyMap<string, string>;
  /** `fail`: an invalid selection fails the ADD. `ignore`: it counts as none, with a warning (NPWG 1.3, section 4.1.2). */
  readonly policy: "fail" | "ignore";
}

export const selectionSources = [
  "podnet.dev",
  "npwg",
  "arguments",
  "configuration",
  "none",
] as const;
export type SelectionSource = (typeof selectionSources)[number];

/** Which networks a request is for. */
export interface Selected {
  readonly source: SelectionSource;
  /**
   * `explicit`: the networks are these and no others. `additional`: the default network comes first, then these
   * (the NPWG annotation, and when nothing is selected).
   */
  readonly mode: "explicit" | "additional";
  readonly selections: readonly Selection[];
  /** Replaces the default network (v1.multus-cni.io/default-network); in mode "additional" only. */
  readonly defaultNetwork?: Selection;
  /** What was ignored by policy, one line each. */
  readonly warnings: readonly string[];
}

/**
 * Finds a request's selection. The first of these that selects anything counts alone: annotation podnet.dev/networks, annotation
 * k8s.v1.cni.cncf.io/networks, CNI_ARGS PODNET_NETWORKS, `networks` of the configuration. Throws a CniError (code 106) for an
 * invalid one.
 */
export function selectNetworks(input: SelectInput): Selected {
  try {
    return select(input);
  } catch (error) {
    if (!(error instanceof SelectionError)) throw error;
    if (input.policy === "ignore") {
      const warnings = [`selection ignored: ${error.message}`];
      return { source: "none", mode: "additional", selections: [], warnings };
    }
    throw asCniError(error);
  }
}

/** Where the message names only some of the faults, the details have all, one a line. Runtimes print both. */
function asCniError(cause: SelectionError): CniError {
  const all = cause.faults.map(formatFault).join("\n");
  const details = cause.faults.length > mostFaultsShown ? { details: all } : {};
  return new CniError(cniCode.selectionInvalid, cause.message, { ...details, cause });
}

/** The pod annotations that the runtime handed over; undefined when it did not. */
export function podAnnotations(config: JsonObject): Readonly<Record<string, string>> | undefined {
  const { runtimeConfig } = config;
  const value = isJsonObject(runtimeConfig) ? runtimeConfig[podAnnotationsCapability] : undefined;
  if (!isJsonObject(value)) return undefined;
  return Object.fromEntries(
    Object.entries(value).filter(
      (entry): entry is [string, string] => typeof entry[1] === "string",
    ),
  );
}

/** The namespace of the pod that CNI_ARGS name; "default" where they name none. */
export function podNamespace(args: ReadonlyMap<string, string>): string {
  return args.get("K8S_POD_NAMESPACE") || "default";
}

function select(input: SelectInput): Selected {
  const namespace = podNamespace(input.args);
  const annotated = selectByAnnotations(podAnnotations(input.config) ?? {}, namespace);
  if (annotated.source !== "none") return { ...annotated, warnings: [] };
  const podnet = { dialect: "podnet", namespace } as const;
  const listed = input.args.get(networksArg) ?? "";
  if (listed.trim() !== "") {
    return explicit(
      "arguments",
      readShortForm({ ...podnet, origin: `CNI_ARGS ${networksArg}` }, listed),
    );
  }
  const { networks = [] } = input.config;
  const configured = readSelectionList(
    { ...podnet, origin: "networks of the CNI configuration" },
    networks ?? [],
  );
  if (configured.length > 0) return explicit("configuration", configured);
  return { source: "none", mode: "additional", selections: [], warnings: [] };
}

function explicit(source: SelectionSource, selections: readonly Selection[]): Selected {
  return { source, mode: "explicit", selections, warnings: [] };
}
