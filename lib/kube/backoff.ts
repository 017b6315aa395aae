/** Milliseconds: the first pause and the longest. */
const first = 500;
const longest = 30_000;

/**
 * Pauses between attempts: doubled each time up to half a minute, each somewhere between half and all of that, so that the nodes of
 * a cluster do not come back at the same moment.
 */
export class Backoff {
  #failures = 0;
  readonly #random: () => number;

  /** `random` gives numbers from 0 to 1, as Math.random. */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** Milliseconds to wait now; at least `least` (what a server asked for). */
  next(least = 0): number {
    const whole = Math.min(first * 2 ** Math.min(this.#failures, 16), longest);
    this.#failures++;
    return Math.max(Math.round(whole * (0.5 + this.#random() / 2)), least);
  }

  reset(): void {
    this.#failures = 0;
  }
}
