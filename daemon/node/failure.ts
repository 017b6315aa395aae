import { DeadlineError } from "../../lib/base/deadlines.ts";
import { DecodeError } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { isPassing } from "../../lib/base/passing.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";

/** An operation was ended from outside (the daemon stops, the caller has gone): the same call may succeed later. */
export class EndedError extends Error {
  override readonly name = "EndedError";
}

/**
 * Anything that was thrown, as the CNI error to answer with: code 11 for what passes, 7 for a value that can't be decoded,
 * 999 for what nobody foresaw. `where` goes before the text; code and details of a CniError stay, unless `code` is given.
 */
export function asFailure(error: unknown, where?: string, code?: number): CniError {
  if (error instanceof CniError && where === undefined && code === undefined) return error;
  const prefix = where === undefined ? "" : `${where}: `;
  const details = error instanceof CniError ? error.details : undefined;
  return new CniError(code ?? codeOf(error), `${prefix}${errorText(error)}`, {
    cause: error,
    ...(details === undefined ? {} : { details }),
  });
}

function codeOf(error: unknown): number {
  if (error instanceof CniError) return error.code;
  if (error instanceof DecodeError) return cniCode.invalidNetworkConfig;
  return passes(error) ? cniCode.tryAgainLater : cniCode.internal;
}

function passes(error: unknown): boolean {
  if (error instanceof DeadlineError || error instanceof EndedError) return true;
  if (error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError")) {
    return true;
  }
  return isPassing(error);
}
