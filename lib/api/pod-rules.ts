import type { Fault } from "../base/decode.ts";
import { annotations, defaultNetworkName, objectNameFault } from "./names.ts";
import {
  readDefaultOverride,
  readNpwgList,
  readOwnList,
  selectByAnnotations,
} from "./pod-selection.ts";
import { type Selection, SelectionError } from "./selection.ts";
import { refuseHostNetwork } from "./selection-list.ts";

type Annotations = Readonly<Record<string, string>>;

/** What decides about a pod's networks before it exists. */
export interface PodFacts {
  readonly namespace: string;
  readonly annotations: Annotations;
  /** It shares the node's interfaces. */
  readonly hostNetwork: boolean;
}

/** Everything that is wrong with what a pod says about networks, and what is odd. */
export interface PodVerdict {
  /** `path` begins with the annotation's key: `podnet.dev/networks[1].interfaceName`. */
  readonly faults: readonly Fault[];
  readonly warnings: readonly string[];
}

/** The annotations that say which networks a pod gets; none of them may change once it exists (spec A.3.1 rule 7). */
export const selectingAnnotations = [
  annotations.networks,
  annotations.npwgNetworks,
  annotations.multusDefaultNetwork,
] as const;

/**
 * The static rules (spec A.3.1, B.2) of all three annotations at once. podnetd reads them by the same functions; it stops at the
 * first list that selects anything, here each of them must be sound.
 */
export function checkPod({ namespace, annotations: given, hostNetwork }: PodFacts): PodVerdict {
  const faults: Fault[] = [];
  const own = collect(annotations.networks, faults, () => readOwnList(given, namespace));
  const npwg = collect(annotations.npwgNetworks, faults, () => readNpwgList(given, namespace));
  collect(annotations.multusDefaultNetwork, faults, () => {
    const network = readDefaultOverride(given);
    return network === undefined ? [] : [network];
  });
  if (hostNetwork) {
    collect(annotations.networks, faults, () => {
      refuseHostNetwork(annotations.networks, own);
      return [];
    });
  }
  return { faults, warnings: faults.length > 0 ? [] : oddities({ own, npwg, hostNetwork }) };
}

interface Lists {
  readonly own: readonly Selection[];
  readonly npwg: readonly Selection[];
  readonly hostNetwork: boolean;
}

function oddities({ own, npwg, hostNetwork }: Lists): string[] {
  if (npwg.length === 0) return [];
  if (hostNetwork) {
    return [`annotation ${annotations.npwgNetworks} has no effect: the pod has hostNetwork`];
  }
  if (own.length === 0) return [];
  return [
    `annotation ${annotations.npwgNetworks} is ignored: ${annotations.networks} counts alone`,
  ];
}

function collect(
  key: string,
  faults: Fault[],
  read: () => readonly Selection[],
): readonly Selection[] {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SelectionError)) throw error;
    for (const { path, message } of error.faults) faults.push(under(key, path, message));
    return [];
  }
}

function under(key: string, path: string, message: string): Fault {
  const separator = path === "" || path.startsWith("[") ? "" : ".";
  return { path: `${key}${separator}${path}`, message };
}

/** The selecting annotations that an update of a pod would add, change or take away. */
export function selectionChanges(before: Annotations, after: Annotations): Fault[] {
  return selectingAnnotations
    .filter((key) => ownText(before, key) !== ownText(after, key))
    .map((key) => ({
      path: key,
      message: "can't be changed once the pod exists: create another pod",
    }));
}

function ownText(given: Annotations, key: string): string | undefined {
  return Object.hasOwn(given, key) ? given[key] : undefined;
}

/** What is known of default networks where a pod is about to be created. */
export interface Defaults {
  /** Annotations of the pod's namespace. */
  readonly namespaceAnnotations: Annotations;
  readonly exists: (podNetwork: string) => boolean;
}

/** The default network of a namespace's pods (spec A.6): the namespace's own, else the cluster's. */
export function defaultOf(namespaceAnnotations: Annotations): string {
  return ownText(namespaceAnnotations, annotations.defaultNetwork)?.trim() || defaultNetworkName;
}

/**
 * The text of podnet.dev/networks that a pod without a selection gets (spec A.3.3): its namespace's default network, else the
 * cluster's. undefined: it gets none, because it selects something, has hostNetwork, or there is no such network (podnetd then says
 * so, as it does for any pod that nobody filled in).
 */
export function populated(
  { namespace, annotations: given, hostNetwork }: PodFacts,
  { namespaceAnnotations, exists }: Defaults,
): string | undefined {
  if (hostNetwork || selectByAnnotations(given, namespace).source !== "none") return undefined;
  const name = defaultOf(namespaceAnnotations);
  if (objectNameFault(name) !== undefined || !exists(name)) return undefined;
  return JSON.stringify([{ name }]);
}

/**
 * The networks of its own list that a pod must wait for; empty: none, as for a list that is no more than the default which the pod
 * would have got anyway (a populated one, or a copy of one).
 */
export function awaited(
  { namespace, annotations: given, hostNetwork }: PodFacts,
  namespaceAnnotations: Annotations,
): readonly Selection[] {
  if (hostNetwork) return [];
  const own = readOwnList(given, namespace);
  const name = defaultOf(namespaceAnnotations);
  return ownText(given, annotations.networks) === JSON.stringify([{ name }]) ? [] : own;
}
