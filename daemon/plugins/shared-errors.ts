import { errorText } from "../../lib/base/errors.ts";
import { CniError } from "../../lib/cni/errors.ts";

/** A CniError with this code that says what failed and why; a CniError stays as it is, since it says so already. */
export function asCniError(error: unknown, code: number, action: string): CniError {
  if (error instanceof CniError) return error;
  return new CniError(code, `${action}: ${errorText(error)}`, { cause: error });
}
