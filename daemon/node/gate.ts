import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { Release } from "./locks.ts";

export interface GateOptions {
  /** Operations that run at the same time. */
  readonly running: number;
  /** Operations that may wait beyond those; one more is refused at once. */
  readonly waiting: number;
}

interface Waiter {
  readonly grant: (release: Release) => void;
}

/**
 * Bounds how many operations of one kind run and wait, first come first served. A caller above the bound is told to
 * come again (code 11), so that a storm of pods costs time and not memory.
 */
export class Gate {
  readonly #options: GateOptions;
  readonly #waiting: Waiter[] = [];
  #running = 0;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  get running(): number {
    return this.#running;
  }

  /** Waits for a turn. Rejects with code 11 when too many wait, and with the signal's reason when it ends first. */
  async enter(signal: AbortSignal): Promise<Release> {
    signal.throwIfAborted();
    if (this.#running < this.#options.running) return this.#admit();
    if (this.#waiting.length >= this.#options.waiting) {
      throw new CniError(
        cniCode.tryAgainLater,
        `queue operation: ${this.#waiting.length} operations wait already, try again later`,
      );
    }
    return await new Promise<Release>((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        reject(signal.reason as Error);
      };
      const waiter: Waiter = {
        grant: (release) => {
          signal.removeEventListener("abort", abort);
          resolve(release);
        },
      };
      this.#waiting.push(waiter);
      signal.addEventListener("abort", abort, { once: true });
    });
  }

  #admit(): Release {
    this.#running += 1;
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      this.#running -= 1;
      const next = this.#waiting.shift();
      if (next !== undefined) next.grant(this.#admit());
    };
  }
}

/** Mebibytes that one running operation may need, and how many may wait for each of those. */
const perOperation = 6;
const waitingPerMebibyte = 8;

/**
 * Sizes for the memory that the process may use (bytes; 0 or a huge number when nothing limits it): few enough that running
 * operations fit beside the daemon itself, and a queue that holds a node's worth of pods.
 */
export function gateSizes(memory: number): GateOptions {
  const mebibytes = memory > 0 ? memory / 2 ** 20 : Number.POSITIVE_INFINITY;
  return {
    running: clamp(mebibytes / perOperation, 4, 32),
    waiting: clamp(mebibytes * waitingPerMebibyte, 256, 4096),
  };
}

function clamp(value: number, low: number, high: number): number {
  return Math.floor(Math.min(Math.max(value, low), high));
}
