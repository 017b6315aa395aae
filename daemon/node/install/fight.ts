/** Milliseconds: the longest pause between two restorations, and the calm after which the next one is immediate again. */
const longestPause = 30_000;
const calmAfter = 120_000;

/**
 * Somebody takes podnet's file away, and podnet puts it back: at once the first time, then with pauses that double, so that two programs
 * that both insist on theirs don't keep a node busy. `now` in milliseconds.
 */
export class Fight {
  #rounds = 0;
  #last = Number.NEGATIVE_INFINITY;

  /** Milliseconds until the next restoration may be done; 0: now. */
  pause(now: number): number {
    if (this.#rounds === 0 || now - this.#last > calmAfter) return 0;
    const pause = Math.min(1_000 * 2 ** (this.#rounds - 1), longestPause);
    return Math.max(0, this.#last + pause - now);
  }

  /** One was done. */
  struck(now: number): void {
    this.#rounds = now - this.#last > calmAfter ? 1 : this.#rounds + 1;
    this.#last = now;
  }
}
