import type { CniError } from "../../lib/cni/errors.ts";
import type { SandboxRecord } from "./record.ts";

/** Which pod it is about, as far as the runtime says. */
export type PodNames = SandboxRecord["pod"];

/** Hears that a sandbox could not be given back now and stays pending. Must not throw, and must not wait. */
export type PendingListener = (record: SandboxRecord, failure: CniError) => void;

/** Hears that a pod's selection was ignored by policy, and why. As PendingListener. */
export type IgnoredListener = (pod: PodNames, warning: string) => void;

/**
 * Tells whoever listens what no answer of a call says: a sandbox can stay pending after a failed ADD, at a start, in GC; an ADD can
 * succeed without the networks that the pod asked for.
 */
export class Notices {
  readonly #listeners = new Set<PendingListener>();
  readonly #ignored = new Set<IgnoredListener>();

  onPending(listener: PendingListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  onIgnored(listener: IgnoredListener): Disposable {
    this.#ignored.add(listener);
    return { [Symbol.dispose]: () => this.#ignored.delete(listener) };
  }

  ignored(pod: PodNames, warning: string): void {
    for (const listener of this.#ignored) listener(pod, warning);
  }

  pending(record: SandboxRecord, failure: CniError): void {
    for (const listener of this.#listeners) listener(record, failure);
  }
}
