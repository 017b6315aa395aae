import type { z } from "zod";
import { issueText, shortText } from "./decode-texts.ts";

/** One thing that is wrong with an outside value: where (`ranges[0][1].subnet`; empty for the value itself) and what. */
export interface Fault {
  readonly path: string;
  readonly message: string;
}

/** An outside value is not what it should be. Carries every fault found, not only the first. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";
  readonly faults: readonly Fault[];

  constructor(what: string, faults: readonly Fault[]) {
    super(`decode ${what}: ${faults.map(formatFault).join("; ")}`);
    this.faults = faults;
  }
}

/** `ipam.ranges[0].subnet: must be a CIDR`, for one line of text. */
export function formatFault(fault: Fault): string {
  return fault.path === "" ? fault.message : `${fault.path}: ${fault.message}`;
}

/** Writes a path of keys and indices as people write it in code: `plugins[0].ipam.type`. */
export function formatPath(keys: readonly PropertyKey[]): string {
  let text = "";
  for (const key of keys) {
    if (typeof key === "number") text += `[${key}]`;
    else text += text === "" ? String(key) : `.${String(key)}`;
  }
  return text;
}

/**
 * Decodes an outside value by a schema. `what` names the value in the error ("network selection").
 * Throws a DecodeError with all faults.
 */
export function decode<T extends z.ZodType>(schema: T, value: unknown, what: string): z.output<T> {
  const outcome = schema.safeParse(value, { error: issueText });
  if (outcome.success) return outcome.data;
  throw new DecodeError(
    what,
    outcome.error.issues.map(({ path, message }) => ({ path: formatPath(path), message })),
  );
}

/** As decode; each fault says also what was given, in a short form. Not for what may be secret. */
export function decodeQuoting<T extends z.ZodType>(
  schema: T,
  value: unknown,
  what: string,
): z.output<T> {
  const outcome = schema.safeParse(value, { error: issueText });
  if (outcome.success) return outcome.data;
  throw new DecodeError(
    what,
    outcome.error.issues.map(({ path, message }) => ({
      path: formatPath(path),
      message: withGiven(message, valueAt(value, path)),
    })),
  );
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let inner = value;
  for (const key of path) {
    if (typeof inner !== "object" || inner === null || !Object.hasOwn(inner, key)) return undefined;
    inner = (inner as Record<PropertyKey, unknown>)[key];
  }
  return inner;
}

/** A message and the value that it is about, unless that is absent or told already. */
function withGiven(message: string, given: unknown): string {
  const text = shortText(given);
  if (text === undefined || message.includes(text)) return message;
  return `${message} (given: ${text})`;
}
