/** The API could not be asked, or said no. */
export class KubeError extends Error {
  override readonly name = "KubeError";
  /** HTTP status; undefined: no answer came (network, TLS, deadline). */
  readonly status: number | undefined;
  /** metav1.Status.reason: "NotFound", "Expired", "AlreadyExists". */
  readonly reason: string | undefined;
  /** Milliseconds that the server asks to wait. */
  readonly retryAfter: number | undefined;

  constructor(
    message: string,
    options: {
      readonly status?: number | undefined;
      readonly reason?: string | undefined;
      readonly retryAfter?: number | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.status = options.status;
    this.reason = options.reason;
    this.retryAfter = options.retryAfter;
  }
}

/** Whether the API said for certain that there is no such object (or no such kind). */
export function isNotFound(error: unknown): boolean {
  return error instanceof KubeError && error.status === 404;
}

/** Whether the resource version that a list or watch continued from is too old. */
export function isExpired(error: unknown): boolean {
  return error instanceof KubeError && (error.status === 410 || error.reason === "Expired");
}

/** Whether the object has changed since it was read, or is there already: read again. */
export function isConflict(error: unknown): boolean {
  return error instanceof KubeError && error.status === 409;
}
