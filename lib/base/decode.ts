import type { z } from "zod";
import { issueText } from "./decode-texts.ts";

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
    outcome.error.issues.map((issue) => ({ path: formatPath(issue.path), message: issue.message })),
  );
}
