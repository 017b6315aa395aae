import { quote } from "./names.ts";

/** One requirement of a selector (Kubernetes: Labels and Selectors). */
export type Requirement =
  | { readonly operator: "in" | "notin"; readonly key: string; readonly values: readonly string[] }
  | { readonly operator: "exists" | "absent"; readonly key: string };

/** A label selector is not what it should be. */
export class SelectorError extends Error {
  override readonly name = "SelectorError";
}

const longest = 4096;
const keyPattern =
  /^(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/;
const valuePattern = /^(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/;

/**
 * Reads a label selector as kubectl takes it: `team=a,env!=prod,tier in (front, back),!legacy`. All requirements must hold.
 * Throws a SelectorError; an empty selector is one, so that nothing is opened by accident.
 */
export function parseSelector(text: string): readonly Requirement[] {
  if (text.length > longest) throw new SelectorError(`must have at most ${longest} characters`);
  const parts = splitOutside(text);
  if (parts.every((part) => part === "")) throw new SelectorError("must not be empty");
  return parts.map(parseRequirement);
}

/** Whether labels fulfil every requirement. A missing label fulfils `!=` and `notin`, as in Kubernetes. */
export function matchesSelector(
  requirements: readonly Requirement[],
  labels: Readonly<Record<string, string>>,
): boolean {
  return requirements.every((one) =>
    fulfils(one, Object.hasOwn(labels, one.key) ? labels[one.key] : undefined),
  );
}

function fulfils(requirement: Requirement, value: string | undefined): boolean {
  switch (requirement.operator) {
    case "exists":
      return value !== undefined;
    case "absent":
      return value === undefined;
    case "in":
      return value !== undefined && requirement.values.includes(value);
    case "notin":
      return value === undefined || !requirement.values.includes(value);
  }
}

/** Splits at commas that stand outside of parentheses. */
function splitOutside(text: string): string[] {
  const parts = [""];
  let depth = 0;
  for (const letter of text) {
    if (letter === "(") depth++;
    if (letter === ")") depth--;
    if (letter === "," && depth === 0) parts.push("");
    else parts[parts.length - 1] += letter;
  }
  return parts.map((part) => part.trim());
}

function parseRequirement(text: string): Requirement {
  const set = /^(?<key>\S+)\s+(?<operator>in|notin)\s*\((?<list>[^()]*)\)$/.exec(text)?.groups;
  if (set !== undefined) {
    const values = (set["list"] ?? "").split(",").map((value) => checkValue(value.trim(), text));
    const operator = set["operator"] === "in" ? "in" : "notin";
    return { operator, key: checkKey(set["key"] ?? "", text), values };
  }
  const equal = /^(?<key>[^\s=!]+)\s*(?<operator>==|=|!=)\s*(?<value>[^\s=!]*)$/.exec(text)?.groups;
  if (equal !== undefined) {
    const values = [checkValue(equal["value"] ?? "", text)];
    const operator = equal["operator"] === "!=" ? "notin" : "in";
    return { operator, key: checkKey(equal["key"] ?? "", text), values };
  }
  if (text.startsWith("!"))
    return { operator: "absent", key: checkKey(text.slice(1).trim(), text) };
  return { operator: "exists", key: checkKey(text, text) };
}

function checkKey(key: string, text: string): string {
  if (key.length <= 317 && keyPattern.test(key)) return key;
  throw new SelectorError(
    `${quote(text)} must be KEY, !KEY, KEY=VALUE, KEY!=VALUE or KEY in (VALUE, ...)`,
  );
}

function checkValue(value: string, text: string): string {
  if (value.length <= 63 && valuePattern.test(value)) return value;
  throw new SelectorError(`${quote(text)}: ${quote(value)} is no value of a label`);
}
