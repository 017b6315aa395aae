import { errorText } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import { CniError, cniCode } from "./errors.ts";
import { parseJsonObject } from "./json-text.ts";

/** How the run of a plugin executable ended. */
export interface InvocationOutcome {
  /** null when it was killed or never ran. */
  readonly exitCode: number | null;
  readonly killedBy: string | undefined;
  readonly stdout: string;
  readonly stderr: string;
  /** Why podnet ended it; undefined when it ended by itself. */
  readonly stopped: string | undefined;
  /** Why it could not be started. */
  readonly startError: unknown;
}

/** Which call failed. */
export interface InvokedCall {
  readonly type: string;
  readonly verb: string;
}

/** Characters of a plugin's text that a message quotes. */
const quotable = 500;

export function startFailure(error: unknown): InvocationOutcome {
  const nothing = { exitCode: null, killedBy: undefined, stdout: "", stderr: "" };
  return { ...nothing, stopped: undefined, startError: error };
}

/**
 * The error of a run that did not succeed. An error object on stdout keeps its code and details and gets the plugin's type before its
 * message; everything else is code 107 with what is known.
 */
export function failureOf(call: InvokedCall, outcome: InvocationOutcome): CniError {
  const plugin = `plugin "${call.type}"`;
  const { startError, stopped, killedBy, stderr } = outcome;
  const failed = (reason: string, cause?: unknown) =>
    new CniError(cniCode.delegateFailed, `${plugin}: ${call.verb} ${reason}`, {
      ...(stderr === "" ? {} : { details: stderr }),
      cause,
    });
  if (startError !== undefined)
    return failed(`could not start: ${errorText(startError)}`, startError);
  if (stopped !== undefined) return failed(stopped);
  if (killedBy !== undefined) return failed(`was killed by ${killedBy}`);
  const own = decodeError(outcome.stdout);
  if (own !== undefined) {
    const details = own.details === undefined ? {} : { details: own.details };
    return new CniError(own.code, `${plugin}: ${own.message}`, details);
  }
  return failed(`failed: ${wordsOf(outcome)}`);
}

/** Decodes a CNI error object (CNI 1.1.0, "Error"). undefined when the text is none. */
export function decodeError(text: string): CniError | undefined {
  const value = objectOf(text);
  if (value === undefined) return undefined;
  const { code, msg, details } = value;
  if (typeof code !== "number" || !Number.isInteger(code) || typeof msg !== "string")
    return undefined;
  // 0 says "unknown" in the CNI project's library; an error without a code must not look like success.
  const shown = code > 0 ? code : cniCode.internal;
  const kept = typeof details === "string" && details !== "" ? { details } : {};
  return new CniError(shown, msg === "" ? "failed without a message" : msg, kept);
}

function objectOf(text: string): JsonObject | undefined {
  try {
    return parseJsonObject(text, "CNI error");
  } catch {
    return undefined;
  }
}

/** Whatever the plugin said, on stdout or else on stderr, in one line. */
function wordsOf({ stdout, stderr, exitCode }: InvocationOutcome): string {
  const words = (stdout.trim() || stderr).replace(/\s+/g, " ");
  if (words === "") return `exit status ${exitCode} without a message`;
  return words.length <= quotable ? words : `${words.slice(0, quotable)}...`;
}
