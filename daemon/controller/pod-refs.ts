import { defaultNetworkName } from "../../lib/api/names.ts";
import { selectByAnnotations } from "../../lib/api/pod-selection.ts";
import { refName, SelectionError } from "../../lib/api/selection.ts";
import { isFinished, type KeptPod } from "./kept-pods.ts";

/** What a pod refers to: names of PodNetworks, and PodNetworkAttachments as `namespace/name`. */
export interface PodRefs {
  readonly networks: readonly string[];
  readonly attachments: readonly string[];
}

const none: PodRefs = { networks: [], attachments: [] };

/**
 * What a pod refers to: what it selects, the default network where that plays a part, and what its node reports that it got (its
 * annotations may have changed since). Nothing for pods that have ended and for those on the node's own network. A selection that
 * can't be read refers to nothing: no pod starts with it. `defaultName`: the default network that its namespace names.
 */
export function podRefs(pod: KeptPod, namespace: string, defaultName?: string): PodRefs {
  if (pod.hostNetwork || isFinished(pod)) return none;
  const selected = selectedBy(pod, namespace, defaultName ?? defaultNetworkName);
  const attached = pod.attached.filter((name) => !name.includes("/"));
  if (attached.every((name) => selected.networks.includes(name))) return selected;
  return { ...selected, networks: [...new Set([...selected.networks, ...attached])] };
}

function selectedBy(pod: KeptPod, namespace: string, defaultName: string): PodRefs {
  try {
    const { mode, selections, defaultNetwork } = selectByAnnotations(pod.annotations, namespace);
    const refs = selections.map(({ ref }) => ref);
    const own = mode === "additional" && defaultNetwork === undefined ? [defaultName] : [];
    const named = refs.filter(({ kind }) => kind === "podNetwork").map(refName);
    return {
      networks: [...own, ...named],
      attachments: refs.filter(({ kind }) => kind === "podNetworkAttachment").map(refName),
    };
  } catch (error) {
    if (!(error instanceof SelectionError)) throw error;
    return none;
  }
}

/**
 * Whether a pod that refers to a network or attachment keeps it from going once somebody has deleted it (`deleted`, RFC 3339). One
 * that no node has yet is not attached, and will not be: nothing new is attached from then on. The same holds for one that was
 * made afterwards and does not run. Whoever does run has it.
 */
export function holdsDeleted(pod: KeptPod, deleted: string): boolean {
  if (isFinished(pod)) return false;
  if (pod.attached.length > 0) return true;
  if (pod.nodeName === "") return false;
  if (pod.phase !== "Pending" && pod.phase !== "") return true;
  // Times have whole seconds: one of the same second may have been there before.
  return !(Date.parse(pod.created) > Date.parse(deleted));
}
