import type { CniError } from "../../lib/cni/errors.ts";
import type { SandboxRecord } from "./record.ts";

/** Hears that a sandbox could not be given back now and stays pending. Must not throw, and must not wait. */
export type PendingListener = (record: SandboxRecord, failure: CniError) => void;

/** Tells whoever listens what happens away from calls: a sandbox can stay pending after a failed ADD, at a start, in GC. */
export class Notices {
  readonly #listeners = new Set<PendingListener>();

  onPending(listener: PendingListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  pending(record: SandboxRecord, failure: CniError): void {
    for (const listener of this.#listeners) listener(record, failure);
  }
}
