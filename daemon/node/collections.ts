import { once } from "node:events";

/**
 * Keeps collecting a network's garbage and beginning attachments to it apart: who is collecting knows the attachments of one moment, and would
 * take for garbage what one that began later has reserved. Attachments that began before are known, so those are not waited for.
 */
export class Collections {
  readonly #running = new Map<string, Promise<unknown>>();

  /** Runs `work`, which learns what is attached before its first wait, while no other collection of the network runs. */
  async collect<T>(network: string, work: () => Promise<T>): Promise<T> {
    for (let other = this.#running.get(network); other; other = this.#running.get(network)) {
      await other;
    }
    const running = work();
    this.#running.set(
      network,
      running.then(
        () => this.#running.delete(network),
        () => this.#running.delete(network),
      ),
    );
    return await running;
  }

  /** Calls `begin` in a moment in which none of the networks is being collected. Rejects with the signal's reason when it ends first. */
  async begin<T>(networks: readonly string[], signal: AbortSignal, begin: () => T): Promise<T> {
    for (;;) {
      signal.throwIfAborted();
      const busy = networks.flatMap((network) => this.#running.get(network) ?? []);
      if (busy.length === 0) return begin();
      await endOf(Promise.all(busy), signal);
    }
  }
}

async function endOf(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const done = new AbortController();
  const aborted = once(signal, "abort", { signal: done.signal }).catch(() => undefined);
  await Promise.race([work, aborted]);
  done.abort();
}
