import { annotations, multusNamespace } from "./names.ts";
import { type Selection, SelectionError } from "./selection.ts";
import { readSelectionText } from "./selection-list.ts";

/** What the annotations of a pod say about networks. */
export interface AnnotatedSelection {
  readonly source: "podnet.dev" | "npwg" | "none";
  /** `explicit`: these networks and no others. `additional`: the default network comes first, then these. */
  readonly mode: "explicit" | "additional";
  readonly selections: readonly Selection[];
  /** Replaces the default network (v1.multus-cni.io/default-network); in mode "additional" only. */
  readonly defaultNetwork?: Selection;
}

type Annotations = Readonly<Record<string, string>>;

/**
 * Reads a pod's annotations: podnet.dev/networks where it selects anything, else k8s.v1.cni.cncf.io/networks and
 * v1.multus-cni.io/default-network. Throws a SelectionError with every fault of the list that counts.
 */
export function selectByAnnotations(given: Annotations, namespace: string): AnnotatedSelection {
  const own = readOwnList(given, namespace);
  if (own.length > 0) return { source: "podnet.dev", mode: "explicit", selections: own };
  const selections = readNpwgList(given, namespace);
  const override = readDefaultOverride(given);
  const selectsNothing = selections.length === 0 && override === undefined;
  return {
    source: selectsNothing ? "none" : "npwg",
    mode: "additional",
    selections,
    ...(override === undefined ? {} : { defaultNetwork: override }),
  };
}

/** The list of podnet.dev/networks. Throws a SelectionError. */
export function readOwnList(given: Annotations, namespace: string): readonly Selection[] {
  return readAnnotation(given, { key: annotations.networks, dialect: "podnet", namespace });
}

/** The list of k8s.v1.cni.cncf.io/networks. Throws a SelectionError. */
export function readNpwgList(given: Annotations, namespace: string): readonly Selection[] {
  return readAnnotation(given, { key: annotations.npwgNetworks, dialect: "npwg", namespace });
}

interface AnnotationQuery {
  readonly key: string;
  readonly dialect: "podnet" | "npwg";
  readonly namespace: string;
}

function readAnnotation(
  given: Annotations,
  { key, dialect, namespace }: AnnotationQuery,
): readonly Selection[] {
  const text = Object.hasOwn(given, key) ? (given[key] ?? "") : "";
  return readSelectionText({ dialect, namespace, origin: `annotation ${key}` }, text);
}

/**
 * The network of v1.multus-cni.io/default-network: exactly one NAD; its namespace is Multus' own unless it names another (spec B.3).
 * Throws a SelectionError.
 */
export function readDefaultOverride(given: Annotations): Selection | undefined {
  const key = annotations.multusDefaultNetwork;
  const list = readAnnotation(given, { key, dialect: "npwg", namespace: multusNamespace });
  if (list.length <= 1) return list[0];
  const message = `must name one network, not ${list.length}`;
  throw new SelectionError(`annotation ${key}`, [{ path: "", message }]);
}
