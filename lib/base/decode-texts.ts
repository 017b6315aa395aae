import type { z } from "zod";

const kinds: ReadonlyMap<string, string> = new Map([
  ["array", "a list"],
  ["bigint", "a whole number"],
  ["boolean", "true or false"],
  ["int", "a whole number"],
  ["null", "null"],
  ["number", "a number"],
  ["object", "an object"],
  ["record", "an object"],
  ["string", "a text"],
]);

/** What is wrong with a value for which the schema has no text of its own. The value is not repeated: it may be long, or secret. */
export function issueText(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return typeText(issue.expected, issue.input);
    case "invalid_value":
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(" or ")}`;
    case "too_big":
      return `must ${quantity(issue.origin, issue.maximum, "at most")}`;
    case "too_small":
      return `must ${quantity(issue.origin, issue.minimum, "at least")}`;
    case "unrecognized_keys":
      return `unknown key ${issue.keys.map((key) => JSON.stringify(key)).join(", ")}`;
    default:
      return undefined;
  }
}

function typeText(expected: string, input: unknown): string {
  if (input === undefined) return "missing";
  const wanted = `must be ${kinds.get(expected) ?? `of type ${expected}`}`;
  const given = kinds.get(kindOf(input)) ?? typeof input;
  return typeof input === "number" && expected !== "string" ? wanted : `${wanted}, not ${given}`;
}

function kindOf(input: unknown): string {
  if (input === null) return "null";
  return Array.isArray(input) ? "array" : typeof input;
}

function quantity(origin: string, bound: number | bigint, how: string): string {
  if (origin !== "number" && how === "at least" && bound === 1) return "not be empty";
  if (origin === "string") return `have ${how} ${bound} characters`;
  if (origin === "array" || origin === "set") return `have ${how} ${bound} entries`;
  return `be ${how} ${bound}`;
}

const longestText = 64;

/** An outside value as JSON for a message: one line without control characters, cut when it is long. undefined: there is none. */
export function shortText(value: unknown): string | undefined {
  const text = JSON.stringify(value)?.replace(/[\u007f-\u009f\u2028\u2029]/g, escaped);
  if (text === undefined || text.length <= longestText) return text;
  return `${text.slice(0, longestText - 1)}…`;
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
