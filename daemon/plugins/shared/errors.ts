import { errorText } from "../../../lib/base/errors.ts";
import { isPassing } from "../../../lib/base/passing.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";

/**
 * A CniError with this code that says what failed and why; a CniError stays as it is, since it says so already. A full disk and other things that pass are
 * no fault of podnet's nor of the caller's: code 11, so that the runtime comes again.
 */
export function asCniError(error: unknown, code: number, action: string): CniError {
  if (error instanceof CniError) return error;
  const passes = isPassing(error) && (code === cniCode.ioFailure || code === cniCode.internal);
  return new CniError(passes ? cniCode.tryAgainLater : code, `${action}: ${errorText(error)}`, {
    cause: error,
  });
}
