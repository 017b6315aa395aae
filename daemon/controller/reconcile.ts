import type { ControllerContext } from "./context.ts";
import { WorkQueue } from "./queue.ts";

/** Objects of one kind that are looked at beside each other. */
const workers = 4;

export interface Reconciling {
  /** Of the queue. */
  readonly name: string;
  /** Keys to look at in the beginning. */
  readonly all: () => Iterable<string>;
  /** Subscribes to what makes a key worth a look. */
  readonly watch: (add: (key: string, delay?: number) => void) => readonly Disposable[];
  /** As WorkQueue's. */
  readonly work: (key: string, signal: AbortSignal) => Promise<number | undefined>;
}

/** Looks at every key, and at each again when something about it changes, until `signal`; resolves when the last one is done. */
export async function reconcile(
  { log, metrics }: Pick<ControllerContext, "log" | "metrics">,
  { name, all, watch, work }: Reconciling,
  signal: AbortSignal,
): Promise<void> {
  const observe = (outcome: string, seconds: number) =>
    metrics.reconciles.observe({ queue: name, outcome }, seconds);
  const queue = new WorkQueue({ name, workers, work, log, observe }, signal);
  metrics.watchQueue(name, () => queue.depth);
  using subscriptions = new DisposableStack();
  for (const one of watch((key, delay) => queue.add(key, delay))) subscriptions.use(one);
  for (const key of all()) queue.add(key);
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
  await queue.ended();
}
