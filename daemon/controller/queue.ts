import { errorText } from "../../lib/base/errors.ts";
import type { Log } from "../../lib/base/log.ts";
import { Backoff } from "../../lib/kube/backoff.ts";
import { isConflict } from "../../lib/kube/error.ts";

export interface QueueOptions {
  /** For logs and metrics. */
  readonly name: string;
  /** Keys that are worked on at once. */
  readonly workers: number;
  /**
   * Brings what the key names to where it should be; idempotent, and never called twice at once for one key. Resolves with the
   * milliseconds after which to look again, undefined: when something changes. A rejection is tried again, later each time.
   */
  readonly work: (key: string, signal: AbortSignal) => Promise<number | undefined>;
  readonly log: Log;
  readonly observe?: (outcome: "ok" | "conflict" | "error", seconds: number) => void;
}

/** Milliseconds, about, until a write is tried again whose object had changed: its event is on the way. */
const conflictPause = 100;

interface Later {
  readonly at: number;
  readonly timer: NodeJS.Timeout;
}

/**
 * Keys that wait to be worked on: each waits at most once, so that many changes of an object become one piece of work, and one that
 * changes while it is worked on is worked on again. It holds no more than there are objects.
 */
export class WorkQueue {
  readonly #options: QueueOptions;
  readonly #waiting = new Set<string>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #later = new Map<string, Later>();
  readonly #backoffs = new Map<string, Backoff>();
  readonly #signal: AbortSignal;

  /** Works until `signal`; what is added then is forgotten. */
  constructor(options: QueueOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#forget(), { once: true });
  }

  /** Keys that wait for their turn, those that pause included. */
  get depth(): number {
    return this.#waiting.size + this.#later.size;
  }

  /** Works on the key as soon as there is a place, or after `delay` milliseconds; the sooner of several wishes counts. */
  add(key: string, delay = 0): void {
    if (this.#signal.aborted) return;
    if (delay > 0) this.#addLater(key, delay);
    else {
      this.#cancel(key);
      this.#waiting.add(key);
      this.#fill();
    }
  }

  /** Resolves when nothing is under way any more; for use after the signal. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running.values());
  }

  #forget(): void {
    for (const { timer } of this.#later.values()) clearTimeout(timer);
    this.#later.clear();
    this.#waiting.clear();
  }

  #addLater(key: string, delay: number): void {
    const at = performance.now() + delay;
    const before = this.#later.get(key);
    if (this.#waiting.has(key) || (before !== undefined && before.at <= at)) return;
    this.#cancel(key);
    const timer = setTimeout(() => {
      this.#later.delete(key);
      this.add(key);
    }, delay);
    timer.unref();
    this.#later.set(key, { at, timer });
  }

  #cancel(key: string): void {
    clearTimeout(this.#later.get(key)?.timer);
    this.#later.delete(key);
  }

  #fill(): void {
    for (const key of this.#waiting) {
      if (this.#running.size >= this.#options.workers) return;
      if (this.#running.has(key)) continue;
      this.#waiting.delete(key);
      const running = this.#run(key).finally(() => {
        this.#running.delete(key);
        this.#fill();
      });
      this.#running.set(key, running);
    }
  }

  async #run(key: string): Promise<void> {
    // Whatever added the key has done all it had to do by then.
    await Promise.resolve();
    if (this.#signal.aborted) return;
    const { work, observe } = this.#options;
    const started = performance.now();
    const seconds = () => (performance.now() - started) / 1000;
    try {
      const again = await work(key, this.#signal);
      observe?.("ok", seconds());
      this.#backoffs.delete(key);
      if (again !== undefined) this.add(key, Math.max(again, 1));
    } catch (error) {
      observe?.(isConflict(error) ? "conflict" : "error", seconds());
      this.#failed(key, error);
    }
  }

  #failed(key: string, error: unknown): void {
    if (this.#signal.aborted) return;
    const { name, log } = this.#options;
    if (isConflict(error)) {
      log.debug({ queue: name, key, fault: errorText(error) }, "object has changed");
      this.add(key, conflictPause * (0.5 + Math.random()));
      return;
    }
    log.warn({ queue: name, key, fault: errorText(error) }, "reconcile failed");
    const backoff = this.#backoffs.get(key) ?? new Backoff();
    this.#backoffs.set(key, backoff);
    this.add(key, backoff.next());
  }
}
