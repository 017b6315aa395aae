import { timesAsleep } from "../base/libc.ts";

/**
 * From this many milliseconds on, a call that slept is taken to have waited for RTNL. Creating a veth takes half of one, and the kernel's own
 * cleaning up after a deleted link holds RTNL for some: not worth the detours that follow.
 */
const SLOW_MS = 15;
/** The same for a call through the pool, which nobody can tell from one that waited for a processor: on a busy machine that is a few milliseconds. */
const SLOW_IN_POOL_MS = 50;
/** How long after the latest slow call RTNL counts as contended. */
const COOL_DOWN_MS = 500;

/**
 * Whether somebody else is holding RTNL for long. The kernel's big network lock can't be probed, but each call tells how long it took and whether it slept.
 * While calls are quick they are made on the event loop's own thread (a third cheaper than through the pool, and much quicker when processors are busy);
 * after a slow one they go through the pool until none has been slow for a while, so that contention stops the event loop once and not for its
 * whole length. Then the next call tells again.
 */
export class RtnlPressure {
  readonly #now: () => number;
  readonly #sleeps: () => number;
  #slowUntil = Number.NEGATIVE_INFINITY;

  /** `now` gives milliseconds of a monotonic clock, `sleeps` how often this thread has waited in the kernel. */
  constructor(now: () => number = () => performance.now(), sleeps: () => number = timesAsleep) {
    this.#now = now;
    this.#sleeps = sleeps;
  }

  get contended(): boolean {
    return this.#now() < this.#slowUntil;
  }

  /** To be called when a call on this thread begins; what it returns, when the call has ended. */
  measure(): () => void {
    const sleeps = this.#sleeps();
    const start = this.#now();
    return () => {
      const end = this.#now();
      if (end - start >= SLOW_MS && this.#sleeps() !== sleeps) this.#slowUntil = end + COOL_DOWN_MS;
    };
  }

  /** As `measure`, for a call through the pool. */
  measureInPool(): () => void {
    const start = this.#now();
    return () => {
      const end = this.#now();
      if (end - start >= SLOW_IN_POOL_MS) this.#slowUntil = end + COOL_DOWN_MS;
    };
  }
}

/** One for the process: RTNL is one lock for all network namespaces. */
export const rtnlPressure = new RtnlPressure();
