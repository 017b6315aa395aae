import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../../lib/base/errors.ts";
import type { NodeContext } from "./context.ts";
import { findLeaks, type Leak, type LeakParts, leakKinds } from "./doctor/leaks.ts";

/** Milliseconds between looks. Each costs one look at every namespace and address of the node. */
const lookEvery = 600_000;

/** Looks for leaks now and then, for the metrics: nobody reads doctors' reports at night. Changes nothing. */
export class LeakWatch implements AsyncDisposable {
  readonly #parts: LeakParts;
  readonly #log: NodeContext["log"];
  readonly #ending = new AbortController();
  #running: Promise<void> | undefined;
  #found: readonly Leak[] = [];

  constructor(node: LeakParts & Pick<NodeContext, "log">) {
    this.#parts = node;
    this.#log = node.log;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** How many of each kind the last look found. */
  counts(): Readonly<Record<Leak["kind"], number>> {
    const count = (kind: Leak["kind"]) => this.#found.filter((leak) => leak.kind === kind).length;
    const pairs = leakKinds.map((kind) => [kind, count(kind)] as const);
    return Object.fromEntries(pairs) as Record<Leak["kind"], number>;
  }

  /** One look now. */
  async look(): Promise<readonly Leak[]> {
    this.#found = await findLeaks(this.#parts);
    return this.#found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#ending;
    while (!signal.aborted) {
      // Not all nodes of a cluster at once.
      const pause = lookEvery * (0.8 + Math.random() * 0.4);
      await sleep(pause, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await this.look();
      } catch (error) {
        this.#log.debug({ fault: errorText(error) }, "leaks can't be looked for");
      }
    }
  }
}
