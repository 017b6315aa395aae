/**
 * The error codes that podnet answers with. 1 to 51 are those of the CNI specification 1.1.0 ("Error"), 8 and 999 those of
 * its Go library; 100 and above are podnet's own (docs/errors.md is kept equal to this table by a test).
 */
export const cniCode = {
  incompatibleVersion: 1,
  unsupportedField: 2,
  unknownContainer: 3,
  invalidEnvironment: 4,
  ioFailure: 5,
  decodingFailure: 6,
  invalidNetworkConfig: 7,
  invalidNetns: 8,
  tryAgainLater: 11,
  pluginNotAvailable: 50,
  limitedConnectivity: 51,
  podNetworkMissing: 100,
  podNetworkNotReady: 101,
  nadMissing: 102,
  capabilityUnsupported: 103,
  namespaceNotAllowed: 104,
  noDeviceLeft: 105,
  selectionInvalid: 106,
  delegateFailed: 107,
  addressUnavailable: 108,
  internal: 999,
} as const;

/** What an answer carries besides its message. */
export interface CniErrorOptions {
  /** Longer text for the `details` key: one fault a line, or the cause. */
  readonly details?: string;
  /** What the message has in one line, one by one; for callers, and in no answer. */
  readonly faults?: readonly string[];
  readonly cause?: unknown;
}

/** What would break the line, or move the cursor or the direction of what a person reads: texts of others come into messages. */
const unprintable = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]+/gu;

/** A failure as the CNI specification reports it: a code that callers match on, and one line that a person reads. */
export class CniError extends Error {
  override readonly name = "CniError";
  readonly code: number;
  readonly details: string | undefined;
  readonly faults: readonly string[];

  constructor(code: number, message: string, options: CniErrorOptions = {}) {
    super(
      message.replace(unprintable, " "),
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.details = options.details;
    this.faults = options.faults ?? [];
  }
}
