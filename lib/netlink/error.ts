import { errorCode } from "../base/errors.ts";
import { errnoName } from "../base/system-error.ts";
import type { Acknowledgement } from "./message.ts";

/** The kernel refused an operation, or it could not be carried out. Callers match on `code`. */
export class NetlinkError extends Error {
  override readonly name = "NetlinkError";
  /** The errno's name: `EEXIST`. `EBADF`: the connection was closed before. */
  readonly code: string;
  readonly errno: number;
  /** What was tried: `create link "eth0"`. */
  readonly operation: string;
  /** The kernel's own words (NETLINK_EXT_ACK), where it gave any. */
  readonly kernelText: string | undefined;

  constructor(
    operation: string,
    errno: number,
    reason: ErrorOptions & { kernelText?: string | undefined } = {},
  ) {
    const code = errnoName(errno);
    super(
      `${operation}: ${reason.kernelText === undefined ? code : `${reason.kernelText} (${code})`}`,
      reason,
    );
    this.code = code;
    this.errno = errno;
    this.operation = operation;
    this.kernelText = reason.kernelText;
  }
}

/** The error of an acknowledgement; undefined when it says success. */
export function acknowledgementError(
  operation: string,
  answer: Acknowledgement,
): NetlinkError | undefined {
  return answer.errno === 0
    ? undefined
    : new NetlinkError(operation, answer.errno, { kernelText: answer.text });
}

/** undefined where the kernel says that the thing is not there. */
export async function orNone<T>(work: Promise<T>, ...codes: string[]): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const code = errorCode(error);
    if (code !== undefined && codes.includes(code)) return undefined;
    throw error;
  }
}
