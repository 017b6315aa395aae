import { DecodeError, type Fault } from "../base/decode.ts";
import { annotationLimits, parseJsonText } from "./json-text.ts";
import { type Dialect, type Selection, SelectionError } from "./selection.ts";
import { type EntryPlace, readNpwgEntry, readPodnetEntry } from "./selection-entry.ts";
import { checkNpwgList, checkPodnetList } from "./selection-rules.ts";
import { parseShortForm, type ShortName } from "./short-form.ts";

/** More networks than this in one list are a mistake, and would keep a node busy. */
export const maxSelections = 128;

/** Where a list comes from and whose it is. */
export interface SelectionOrigin {
  readonly dialect: Dialect;
  /** For errors: `annotation podnet.dev/networks`. */
  readonly origin: string;
  /** The pod's namespace. */
  readonly namespace: string;
}

/**
 * Reads the selection annotation of a pod: podnet's is a JSON list, the standard's a JSON list or its short form
 * `[namespace/]name[@interface], ...`. Empty text and an empty list select nothing. Throws a SelectionError with every fault.
 */
export function readSelectionText(from: SelectionOrigin, text: string): readonly Selection[] {
  if (text.trim() === "") return [];
  if (from.dialect === "npwg" && !/[[{"]/.test(text)) return readShortForm(from, text);
  return readSelectionList(from, parseList(from, text));
}

/**
 * Reads the short form, in both dialects: `PODNET_NETWORKS=blue,red@data0` has it too, without namespaces.
 * Throws a SelectionError.
 */
export function readShortForm(from: SelectionOrigin, text: string): readonly Selection[] {
  if (text.length > annotationLimits.length) {
    const message = `must have at most ${annotationLimits.length} characters, not ${text.length}`;
    throw new SelectionError(from.origin, [{ path: "", message }]);
  }
  const entries = parseShortForm(text, from.dialect === "npwg", maxSelections + 1);
  return readItems(
    from,
    entries.map((entry) => ("problem" in entry ? entry : { value: asValue(from.dialect, entry) })),
  );
}

/**
 * Reads a list that is JSON already. In podnet's dialect an entry may also be just the network's name (the `networks` of a plugin
 * configuration). Throws a SelectionError.
 */
export function readSelectionList(from: SelectionOrigin, list: unknown): readonly Selection[] {
  if (!Array.isArray(list)) {
    throw new SelectionError(from.origin, [{ path: "", message: "must be a list of networks" }]);
  }
  return readItems(
    from,
    (list as readonly unknown[]).map((value) => ({ value })),
  );
}

/** Spec A.3.1 rule 6. Throws a SelectionError when a pod on the node's own network selects networks. */
export function refuseHostNetwork(origin: string, selections: readonly Selection[]): void {
  if (selections.length === 0) return;
  const message = "must be absent: the pod has hostNetwork, it shares the node's interfaces";
  throw new SelectionError(origin, [{ path: "", message }]);
}

function parseList(from: SelectionOrigin, text: string): unknown {
  try {
    return parseJsonText(text, from.origin, annotationLimits);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw asSelectionError(from.origin, error);
  }
}

function asSelectionError(origin: string, cause: DecodeError): SelectionError {
  return new SelectionError(origin, cause.faults, cause);
}

/** An entry as a JSON value, or what is wrong with the text that should have become one. */
type Item = { readonly value: unknown } | { readonly problem: string };

function readItems(from: SelectionOrigin, items: readonly Item[]): readonly Selection[] {
  if (items.length > maxSelections) {
    const message = `must have at most ${maxSelections} networks`;
    throw new SelectionError(from.origin, [{ path: "", message }]);
  }
  const faults: Fault[] = [];
  const selections = items
    .map((item, index) => readItem(from, item, { index, faults }))
    .filter((selection) => selection !== undefined);
  faults.push(...(from.dialect === "podnet" ? checkPodnetList : checkNpwgList)(selections));
  if (faults.length > 0) throw new SelectionError(from.origin, faults);
  return selections;
}

function readItem(from: SelectionOrigin, item: Item, place: EntryPlace): Selection | undefined {
  if ("problem" in item) {
    place.faults.push({ path: `[${place.index}]`, message: item.problem });
    return undefined;
  }
  const named = typeof item.value === "string" && from.dialect === "podnet";
  const value = named ? { name: item.value } : item.value;
  const read = from.dialect === "podnet" ? readPodnetEntry : readNpwgEntry;
  return read(value, from.namespace, place);
}

function asValue(dialect: Dialect, entry: ShortName): object {
  const { ifName, ...target } = entry;
  if (ifName === undefined) return target;
  return { ...target, [dialect === "npwg" ? "interface" : "interfaceName"]: ifName };
}
