/** From this many milliseconds on, a call is taken to have waited for RTNL: creating a veth takes half of one. */
const SLOW_MS = 4;
/** How long after the latest slow call RTNL counts as contended. */
const COOL_DOWN_MS = 2000;

/**
 * Whether somebody else is holding RTNL for long. The kernel's big network lock can't be probed, but each call tells how long it took. While calls
 * are quick they are made on the event loop's own thread (a third cheaper than through the pool); after a slow one they go through the pool until
 * none has been slow for a while, so that contention stops the event loop once and not for its whole length.
 */
export class RtnlPressure {
  readonly #now: () => number;
  #slowUntil = Number.NEGATIVE_INFINITY;

  /** `now` gives milliseconds of a monotonic clock. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get contended(): boolean {
    return this.#now() < this.#slowUntil;
  }

  /** To be called when a call begins; what it returns, when the call has ended. */
  measure(): () => void {
    const start = this.#now();
    return () => {
      const end = this.#now();
      if (end - start >= SLOW_MS) this.#slowUntil = end + COOL_DOWN_MS;
    };
  }
}

/** One for the process: RTNL is one lock for all network namespaces. */
export const rtnlPressure = new RtnlPressure();
