import { DecodeError } from "../base/decode.ts";
import { errorText } from "../base/errors.ts";
import { quote } from "./names.ts";

/** What text from outside may have. */
export interface JsonLimits {
  /** Characters. */
  readonly length: number;
  /** Levels of lists and objects. */
  readonly depth: number;
}

/** Kubernetes itself allows 256 KiB for all annotations of an object together. */
export const annotationLimits: JsonLimits = { length: 262_144, depth: 64 };

/**
 * Parses JSON that a person wrote. Besides what is not JSON it refuses text beyond the limits and a key that occurs twice in one
 * object: it can't be known which of the two was meant. Throws a DecodeError.
 */
export function parseJsonText(text: string, what: string, limits: JsonLimits): unknown {
  const refuse = (message: string) => new DecodeError(what, [{ path: "", message }]);
  if (text.length > limits.length) {
    throw refuse(`must have at most ${limits.length} characters, not ${text.length}`);
  }
  const value = parse(text, refuse);
  // Only now: on text that is not JSON the search for tokens could take time in the square of its length.
  if (depthOf(text) > limits.depth) throw refuse(`nested deeper than ${limits.depth} levels`);
  const key = repeatedKey(text);
  if (key !== undefined) throw refuse(`key ${quote(key)} occurs twice in one object`);
  return value;
}

function parse(text: string, refuse: (message: string) => DecodeError): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw refuse(`not JSON: ${printable(errorText(error)).slice(0, 200)}`);
  }
}

/** V8 quotes the text itself, line breaks and all. */
function printable(message: string): string {
  return message.replaceAll(/[\p{Cc}\p{Cf}\s]+/gu, " ");
}

/** The brackets, commas and strings of a JSON text, in order. */
function* tokens(text: string): Generator<string> {
  for (const match of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},]/gs)) yield match[0];
}

function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  for (const token of tokens(text)) {
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    if (depth > deepest) deepest = depth;
  }
  return deepest;
}

/** The first key that an object has twice. */
function repeatedKey(text: string): string | undefined {
  /** For each open bracket the keys seen so far; undefined in a list. */
  const open: (Set<string> | undefined)[] = [];
  /** Whether a string that comes now is a key, if it stands in an object. */
  let atKey = false;
  for (const token of tokens(text)) {
    if (token.startsWith('"')) {
      if (atKey && !addKey(open.at(-1), token)) return JSON.parse(token);
    } else if (token !== ",") nest(open, token);
    atKey = token === "," || token === "{";
  }
  return undefined;
}

function nest(open: (Set<string> | undefined)[], bracket: string): void {
  if (bracket === "{") open.push(new Set());
  else if (bracket === "[") open.push(undefined);
  else open.pop();
}

/** false: it was there. Keys are compared decoded: `"a"` and `"\u0061"` are the same key. */
function addKey(keys: Set<string> | undefined, token: string): boolean {
  const key: string = JSON.parse(token);
  if (keys?.has(key) === true) return false;
  keys?.add(key);
  return true;
}
