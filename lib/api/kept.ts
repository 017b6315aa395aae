import { DecodeError, formatFault } from "../base/decode.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import type { Decoded } from "./decode-objects.ts";
import type { ObjectMeta } from "./objects.ts";

/** An object as it is kept, or why it can't be used. */
export interface Kept<T> {
  readonly object?: T;
  readonly fault?: string;
}

/** A faulty object is kept with its fault, for the pods that ask for it; nobody else notices. */
export function keeper<T>(
  decodeOne: (value: unknown) => Decoded<T>,
): (object: JsonObject) => Kept<T> {
  return (object) => {
    try {
      return { object: decodeOne(withoutRest(object)).value };
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      return { fault: error.faults.map(formatFault).join("; ") };
    }
  };
}

/** Annotations of tools (the last applied object as a whole) would be most of the memory. */
export function withoutRest(object: JsonObject): JsonObject {
  const { metadata } = object;
  if (!isJsonObject(metadata)) return object;
  return { ...object, metadata: { ...metadata, annotations: ownAnnotations(metadata) } };
}

/** Those annotations that podnet reads or writes, by their domains. */
export function ownAnnotations({ annotations }: JsonObject): Record<string, string> {
  const own: Record<string, string> = {};
  if (!isJsonObject(annotations)) return own;
  for (const [key, value] of Object.entries(annotations)) {
    if (
      typeof value === "string" &&
      /^(podnet\.dev|k8s\.v1\.cni\.cncf\.io|v1\.multus-cni\.io)\//.test(key)
    ) {
      own[key] = value;
    }
  }
  return own;
}

/** What is kept of a namespace: labels, and podnet's annotations. */
export function keepNamespace({ metadata }: JsonObject): ObjectMeta {
  const meta = isJsonObject(metadata) ? metadata : {};
  const { name, labels } = meta;
  const words = Object.entries(isJsonObject(labels) ? labels : {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === "string",
  );
  return {
    name: typeof name === "string" ? name : "",
    labels: Object.fromEntries(words),
    annotations: ownAnnotations(meta),
  };
}
