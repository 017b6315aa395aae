import {
  matchesSelector,
  parseSelector,
  type Requirement,
  SelectorError,
} from "./label-selector.ts";
import { annotations, namespaceFault, quote } from "./names.ts";

/** The network that a pod wants: a PodNetwork belongs to no namespace. */
export interface GrantTarget {
  readonly kind: "PodNetwork" | "NetworkAttachmentDefinition";
  readonly namespace?: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** Who wants it, and the node's rules. */
export interface GrantQuery {
  readonly target: GrantTarget;
  /** The pod's namespace. */
  readonly namespace: string;
  /** Labels of that namespace; undefined: nobody could tell (see `unknown`). */
  readonly labels: Readonly<Record<string, string>> | undefined;
  /** Without a grant a NAD serves its own namespace only. */
  readonly namespaceIsolation: boolean;
  /** Namespaces whose NADs every pod may use all the same. */
  readonly globalNamespaces: readonly string[];
}

export type GrantAnswer =
  | { readonly answer: "allowed" }
  /** `reason` follows a colon. */
  | { readonly answer: "refused"; readonly reason: string }
  /** The labels of the pod's namespace decide, and they are not known. */
  | { readonly answer: "unknown" };

const allowed: GrantAnswer = { answer: "allowed" };

/**
 * Whether pods of a namespace may use a network. A grant (annotation `podnet.dev/allowed-namespaces`, names, or
 * `podnet.dev/allowed-namespace-selector`, labels of the namespace) decides where there is one; with both, either suffices. Without,
 * a PodNetwork is open to all, and a NAD to all or, with namespaceIsolation, to its own namespace and where it is global. A NAD
 * always serves its own namespace. A grant that can't be read opens nothing.
 */
export function decideGrant(query: GrantQuery): GrantAnswer {
  const { target, namespace } = query;
  if (target.kind === "NetworkAttachmentDefinition" && target.namespace === namespace) {
    return allowed;
  }
  const names = read(target, annotations.allowedNamespaces);
  const selector = read(target, annotations.allowedNamespaceSelector);
  if (names === undefined && selector === undefined) return withoutGrant(query);
  const listed = (names ?? "").split(",").map((name) => name.trim());
  const fault = names === undefined ? undefined : listFault(listed);
  if (fault !== undefined) return refuse(`annotation ${annotations.allowedNamespaces}: ${fault}`);
  if (listed.includes(namespace)) return allowed;
  if (selector === undefined) return refuse(notGranted(namespace));
  return bySelector(query, selector);
}

/** What is wrong with one of a grant's two annotations, which is then named; undefined: nothing, or it is not there. */
export function grantFault(
  given: Readonly<Record<string, string>>,
  key: string,
): string | undefined {
  const text = Object.hasOwn(given, key) ? given[key] : undefined;
  if (text === undefined) return undefined;
  const fault =
    key === annotations.allowedNamespaces
      ? listFault(text.split(",").map((name) => name.trim()))
      : selectorFault(text);
  return fault === undefined ? undefined : `annotation ${key}: ${fault}`;
}

function selectorFault(text: string): string | undefined {
  try {
    parseSelector(text);
    return undefined;
  } catch (error) {
    if (!(error instanceof SelectorError)) throw error;
    return error.message;
  }
}

function bySelector({ labels, namespace }: GrantQuery, text: string): GrantAnswer {
  let selector: readonly Requirement[];
  try {
    selector = parseSelector(text);
  } catch (error) {
    if (!(error instanceof SelectorError)) throw error;
    return refuse(`annotation ${annotations.allowedNamespaceSelector}: ${error.message}`);
  }
  if (labels === undefined) return { answer: "unknown" };
  return matchesSelector(selector, labels) ? allowed : refuse(notGranted(namespace));
}

function withoutGrant(query: GrantQuery): GrantAnswer {
  const { target, namespace, namespaceIsolation, globalNamespaces } = query;
  if (target.kind === "PodNetwork" || !namespaceIsolation) return allowed;
  if (target.namespace !== undefined && globalNamespaces.includes(target.namespace)) return allowed;
  return refuse(
    `namespaceIsolation is on, and it has no grant for namespace ${quote(namespace)}: annotate it with ${annotations.allowedNamespaces}`,
  );
}

function notGranted(namespace: string): string {
  return `it is not granted to namespace ${quote(namespace)}: add it to the annotation ${annotations.allowedNamespaces}`;
}

function refuse(reason: string): GrantAnswer {
  return { answer: "refused", reason };
}

function read(target: GrantTarget, key: string): string | undefined {
  return Object.hasOwn(target.annotations, key) ? target.annotations[key] : undefined;
}

/** An empty list grants nothing, which may be meant; a name that is none is a mistake. */
function listFault(names: readonly string[]): string | undefined {
  if (names.length === 1 && names[0] === "") return undefined;
  return names.map(namespaceFault).find((fault) => fault !== undefined);
}
