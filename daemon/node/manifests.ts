import { decodeNetworkObject, type NetworkObject } from "../../lib/api/decode-objects.ts";
import { kinds } from "../../lib/api/names.ts";
import type { NetworkRef } from "../../lib/api/selection.ts";
import { DecodeError, type Fault, formatFault } from "../../lib/base/decode.ts";
import { isJsonObject } from "../../lib/base/json.ts";
import { parseYaml, type YamlDocument } from "./yaml-text.ts";

/** One thing that is wrong or odd in a manifest file. */
export interface ManifestNote {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** `spec.provider: must ...` */
  readonly text: string;
}

/** An object of a manifest file, or what is wrong with it. */
export interface Manifest {
  readonly file: string;
  readonly line: number;
  /** What it is, as far as it says; undefined when it does not even say that. */
  readonly ref: NetworkRef | undefined;
  /** undefined when it has faults. */
  readonly object: NetworkObject | undefined;
  readonly faults: readonly ManifestNote[];
  readonly warnings: readonly ManifestNote[];
}

/** So many faults of a document are reported: who wrote more has to start again anyway. */
const mostFaults = 20;

/** Reads the text of a manifest file. Never throws: a document with faults is there with them and does not hide the others. */
export function readManifests(file: string, text: string): readonly Manifest[] {
  return parseYaml(text).flatMap((document) => {
    if ("message" in document) {
      return [broken(file, { line: document.line, text: document.message })];
    }
    return items(document).map((item) => readOne(file, item));
  });
}

interface Item {
  readonly value: unknown;
  readonly lineOf: (path: readonly PropertyKey[]) => number;
}

/** The document, or each item of a Kubernetes List. */
function items(document: YamlDocument): readonly Item[] {
  const { value } = document;
  if (!isJsonObject(value) || value["kind"] !== "List" || !Array.isArray(value["items"])) {
    return [document];
  }
  return (value["items"] as readonly unknown[]).map((item, index) => ({
    value: item,
    lineOf: (path) => document.lineOf(["items", index, ...path]),
  }));
}

function readOne(file: string, item: Item): Manifest {
  const line = item.lineOf([]);
  const ref = refOf(item.value);
  const note = (fault: Fault): ManifestNote => ({
    file,
    line: item.lineOf(keysOf(fault.path)),
    text: formatFault(fault),
  });
  try {
    const { value, warnings } = decodeNetworkObject(item.value);
    return { file, line, ref, object: value, faults: [], warnings: warnings.map(note) };
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return {
      file,
      line,
      ref,
      object: undefined,
      faults: error.faults.slice(0, mostFaults).map(note),
      warnings: [],
    };
  }
}

function broken(file: string, note: { readonly line: number; readonly text: string }): Manifest {
  const faults = [{ file, ...note }];
  return { file, line: note.line, ref: undefined, object: undefined, faults, warnings: [] };
}

/** `plugins[0].type` -> plugins, 0, type */
function keysOf(path: string): readonly PropertyKey[] {
  return [...path.matchAll(/\[(\d+)\]|[^.[\]]+/g)].map(([key, index]) =>
    index === undefined ? key : Number(index),
  );
}

function refOf(value: unknown): NetworkRef | undefined {
  if (!isJsonObject(value) || !isJsonObject(value["metadata"])) return undefined;
  const { name, namespace = "default" } = value["metadata"];
  if (typeof name !== "string" || typeof namespace !== "string") return undefined;
  if (value["kind"] === kinds.podNetwork) return { kind: "podNetwork", name };
  if (value["kind"] === kinds.nad) return { kind: "nad", namespace, name };
  if (value["kind"] === kinds.podNetworkAttachment) {
    return { kind: "podNetworkAttachment", namespace, name };
  }
  return undefined;
}
