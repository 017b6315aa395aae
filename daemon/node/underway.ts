import { setTimeout as sleep } from "node:timers/promises";

/** The work that goes on at the moment, so that the daemon can end after it and not in the middle. */
export class Underway {
  readonly #work = new Set<Promise<unknown>>();

  get size(): number {
    return this.#work.size;
  }

  /** Runs `work` and counts it until it has ended. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const running = work();
    this.#work.add(running);
    try {
      return await running;
    } finally {
      this.#work.delete(running);
    }
  }

  /** Waits until nothing goes on, at most so many milliseconds; false when something still does. */
  async ended(milliseconds: number): Promise<boolean> {
    const late = new AbortController();
    const limit = sleep(milliseconds, undefined, { signal: late.signal }).catch(() => undefined);
    try {
      await Promise.race([limit, this.#allEnded()]);
      return this.size === 0;
    } finally {
      late.abort();
    }
  }

  async #allEnded(): Promise<void> {
    while (this.size > 0) await Promise.allSettled(this.#work);
  }
}
