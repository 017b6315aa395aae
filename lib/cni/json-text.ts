import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import { CniError, cniCode } from "./errors.ts";

/** More levels of lists and objects than this are refused: code that walks the value would run out of stack. */
export const maxJsonDepth = 256;

/**
 * Parses JSON text from outside. Of a key that occurs twice the last value counts, as in the CNI project's own library.
 * Throws a CniError (code 6) for text that is not JSON, not an object or nested deeper than `maxJsonDepth`.
 */
export function parseJsonObject(text: string, what: string): JsonObject {
  const value = parseJson(text, what);
  if (isJsonObject(value)) return value;
  throw undecodable(what, "must be a JSON object");
}

function parseJson(text: string, what: string): Json {
  if (nestsDeeperThan(text, maxJsonDepth)) {
    throw undecodable(what, `nested deeper than ${maxJsonDepth} levels`);
  }
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw undecodable(what, cause instanceof Error ? cause.message : String(cause), cause);
  }
}

function undecodable(what: string, reason: string, cause?: unknown): CniError {
  return new CniError(cniCode.decodingFailure, `decode ${what}: ${reason}`, { cause });
}

/** Counts brackets outside of strings, before anything that might recurse sees the text. */
function nestsDeeperThan(text: string, limit: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === '"') at = endOfString(text, at);
    else if (char === "{" || char === "[") depth++;
    else if (char === "}" || char === "]") depth--;
    if (depth > limit) return true;
  }
  return false;
}

/** Position of the quote that closes the string which opens at `start`; the text's end when none does. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at;
  }
  return text.length;
}
