/** A JSON value as `JSON.parse` gives it, typed instead of `any`. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** A JSON object. Keys that nobody reads are kept as they came. */
export interface JsonObject {
  readonly [key: string]: Json | undefined;
}

/** Tells whether an outside value is a JSON object (not null, not a list). */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
