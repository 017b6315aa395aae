import {
  decodeNad,
  decodePodNetwork,
  decodePodNetworkAttachment,
} from "../../lib/api/decode-objects.ts";
import { type Holder, readHolder } from "../../lib/api/holder.ts";
import { type Kept, keeper, withoutRest } from "../../lib/api/kept.ts";
import type { Nad, PodNetwork, PodNetworkAttachment } from "../../lib/api/objects.ts";
import { DecodeError, type Fault, formatFault } from "../../lib/base/decode.ts";
import { isJsonObject, type Json, type JsonObject } from "../../lib/base/json.ts";

/** What is kept of a PodNetwork or PodNetworkAttachment: enough to decide on it and to write it. */
export interface KeptObject<T> {
  readonly uid: string;
  readonly version: string;
  readonly generation: number;
  /** RFC 3339; undefined: nobody has deleted it. */
  readonly deleted: string | undefined;
  readonly finalizers: readonly string[];
  /** As they are, foreign ones included. */
  readonly conditions: readonly JsonObject[];
  /** undefined: it can't be used, `faults` say why. */
  readonly object: T | undefined;
  readonly faults: readonly Fault[];
  readonly warnings: readonly Fault[];
}

export type KeptNetwork = KeptObject<PodNetwork>;

export type KeptAttachment = KeptObject<PodNetworkAttachment> & {
  readonly holder?: Holder;
};
export type KeptNad = Kept<Nad>;

/** Never throws: an object without sound metadata has empty texts. */
export function keepPodNetwork(object: JsonObject): KeptNetwork {
  return keepObject(object, decodePodNetwork);
}

/** Never throws. */
export function keepPodNetworkAttachment(object: JsonObject): KeptAttachment {
  const kept = keepObject(object, decodePodNetworkAttachment);
  const holder = readHolder(object);
  return holder === undefined ? kept : { ...kept, holder };
}

/** Never throws. */
export const keepNad = keeper(decodeNad);

interface Decoding<T> {
  readonly value: T;
  readonly warnings: readonly Fault[];
}

function keepObject<T>(object: JsonObject, decode: (value: unknown) => Decoding<T>): KeptObject<T> {
  const metadata = objectOf(object["metadata"]);
  const { generation } = metadata;
  const head = {
    uid: text(metadata["uid"]),
    version: text(metadata["resourceVersion"]),
    generation: typeof generation === "number" ? generation : 0,
    deleted: text(metadata["deletionTimestamp"]) || undefined,
    finalizers: list(metadata["finalizers"]).filter((item) => typeof item === "string"),
    conditions: list(objectOf(object["status"])["conditions"]).filter(isJsonObject),
  };
  try {
    const { value, warnings } = decode(withoutRest(object));
    return { ...head, object: value, faults: [], warnings };
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return { ...head, object: undefined, faults: error.faults, warnings: [] };
  }
}

function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

function list(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : [];
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

/** All faults of an object in one line. */
export function faultText(faults: readonly Fault[]): string {
  const shown = faults.slice(0, 10).map(formatFault);
  if (faults.length > shown.length) shown.push(`and ${faults.length - shown.length} more`);
  return shown.join("; ");
}
