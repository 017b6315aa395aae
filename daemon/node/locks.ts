/** Frees what was taken. Safe to call twice. */
export type Release = () => void;

interface Waiter {
  readonly keys: ReadonlySet<string>;
  readonly grant: () => void;
}

/**
 * Mutual exclusion by names. A caller takes all its names in one step, in the order of asking, so that two callers
 * can't wait for each other: one operation at a time for one container and for one pod.
 */
export class KeyedLocks {
  readonly #held = new Set<string>();
  readonly #waiting: Waiter[] = [];

  /** Takes all of `keys`. Rejects with the signal's reason when it ends first; nothing is held then. */
  async acquire(keys: readonly string[], signal: AbortSignal): Promise<Release> {
    signal.throwIfAborted();
    const wanted = new Set(keys);
    if (!this.#blocked(wanted, this.#waiting.length)) return this.#take(wanted);
    return await new Promise<Release>((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        this.#grantWaiting();
        reject(signal.reason as Error);
      };
      const waiter: Waiter = {
        keys: wanted,
        grant: () => {
          signal.removeEventListener("abort", abort);
          resolve(this.#take(wanted));
        },
      };
      this.#waiting.push(waiter);
      signal.addEventListener("abort", abort, { once: true });
    });
  }

  /** Whether somebody holds the name or waits for it. */
  isBusy(key: string): boolean {
    return this.#held.has(key) || this.#waiting.some((waiter) => waiter.keys.has(key));
  }

  /** A caller is blocked by names in use and by those that earlier callers wait for. */
  #blocked(keys: ReadonlySet<string>, ahead: number): boolean {
    if (!this.#held.isDisjointFrom(keys)) return true;
    return this.#waiting.slice(0, ahead).some((waiter) => !waiter.keys.isDisjointFrom(keys));
  }

  #take(keys: ReadonlySet<string>): Release {
    for (const key of keys) this.#held.add(key);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      for (const key of keys) this.#held.delete(key);
      this.#grantWaiting();
    };
  }

  #grantWaiting(): void {
    for (let index = 0; index < this.#waiting.length; ) {
      const waiter = this.#waiting[index];
      if (waiter === undefined || this.#blocked(waiter.keys, index)) {
        index += 1;
      } else {
        this.#waiting.splice(index, 1);
        waiter.grant();
      }
    }
  }
}
