import { deadline } from "../../lib/base/deadlines.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { NodeContext } from "./context.ts";
import { EndedError } from "./failure.ts";
import { giveBackRecords } from "./gc.ts";
import type { Metrics } from "./metrics.ts";
import { podText } from "./pods.ts";
import type { SandboxRecord } from "./record.ts";

/** Milliseconds: between looks, before the first repetition, and at most between repetitions for one sandbox. */
const lookEvery = 1_000;
const firstPause = 1_000;
const longestPause = 300_000;
/** Milliseconds that the caller of an interrupted ADD has to come again before it is undone. */
const retryGrace = 120_000;
const attemptTimeout = 60_000;

interface Attempt {
  readonly count: number;
  /** As performance.now() has it: a clock that is put back must not put off what is due. */
  readonly next: number;
}

/**
 * Finishes what a DEL could not, and undoes ADDs that were interrupted and whose caller never came again, until nothing is left:
 * no runtime needs to ask a second time.
 */
export class PendingDetaches {
  readonly #node: NodeContext;
  readonly #metrics: Metrics;
  readonly #attempts = new Map<SandboxRecord, Attempt>();
  readonly #started = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  readonly #ending = new AbortController();

  constructor(node: NodeContext, metrics: Metrics) {
    this.#node = node;
    this.#metrics = metrics;
  }

  start(): void {
    if (this.#ending.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#look().finally(() => {
        this.#running = undefined;
        this.start();
      });
    }, lookEvery);
  }

  /** Ends an attempt that is under way, to be repeated by the next daemon, and resolves when it has ended. */
  async stop(): Promise<void> {
    this.#ending.abort(new EndedError("podnetd stops"));
    clearTimeout(this.#timer);
    await this.#running;
  }

  async #look(): Promise<void> {
    const now = performance.now();
    const pending = this.#node.store.all().filter((record) => this.#isDue(record, now));
    for (const record of this.#attempts.keys()) {
      if (this.#node.store.get(record) !== record) this.#attempts.delete(record);
    }
    for (const record of pending) {
      if (!this.#ending.signal.aborted) await this.#attempt(record);
    }
  }

  #isDue(record: SandboxRecord, now: number): boolean {
    if (record.phase === "attached") return false;
    if (record.phase === "adding" && now < this.#started + retryGrace) return false;
    const attempt = this.#attempts.get(record);
    return attempt === undefined || attempt.next <= now;
  }

  async #attempt(record: SandboxRecord): Promise<void> {
    const count = (this.#attempts.get(record)?.count ?? 0) + 1;
    using signal = deadline(attemptTimeout, "detach", [this.#ending.signal]);
    const { done, faults } = await giveBackRecords(this.#node, [record], {
      signal,
      still: ({ phase }) => phase !== "attached",
    });
    if (done.length > 0) this.#metrics.countRetry("done");
    if (this.#node.store.get(record) === record) {
      const pause = Math.min(firstPause * 2 ** Math.min(count, 20), longestPause);
      this.#attempts.set(record, { count, next: performance.now() + pause });
    }
    if (faults.length === 0) return;
    this.#metrics.countRetry("failed");
    this.#node.log.warn(
      {
        containerId: record.containerId,
        pod: podText(record.pod),
        attempt: count,
        fault: faults.map(errorText).join("; "),
      },
      "detach is not finished yet",
    );
  }
}
