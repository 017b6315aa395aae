import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../base/errors.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import type { Log } from "../base/log.ts";
import type { KubeClient } from "./client.ts";
import { isConflict, isNotFound } from "./error.ts";
import { listPath, type ObjectKey, objectPath, resources } from "./resource.ts";

export interface LeaseOptions {
  readonly client: KubeClient;
  readonly key: ObjectKey;
  /** Of this process and no other: a restarted one is another. */
  readonly identity: string;
  /** Seconds without a sign of life after which others may take over. */
  readonly duration: number;
  readonly log: Log;
}

/** What is remembered of the lease: others' clocks are not trusted, only that something changed. */
interface Seen {
  readonly object: JsonObject;
  readonly text: string;
  /** Milliseconds, monotonic. */
  readonly at: number;
}

/**
 * Leadership among processes by a coordination.k8s.io/v1 Lease, by the rules of client-go's leader election: a holder renews it
 * several times a duration, gives up by itself when it could not for two thirds of one, and others take over once they have seen no
 * change for a whole duration. Every write names the version it was made on, so two can't both succeed.
 */
export class Lease {
  readonly #options: LeaseOptions;
  #seen: Seen | undefined;
  #leading = false;
  #fault: string | undefined;

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  get leading(): boolean {
    return this.#leading;
  }

  /**
   * Runs `work` whenever this process leads, until `signal`. The work's signal is aborted when leadership is lost; it must end then,
   * and is waited for. Resolves after the lease was given back.
   */
  async run(work: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (await this.#try(signal)) await this.#lead(work, signal);
      else await this.#pause(signal);
    }
  }

  async #lead(work: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    const { log, identity } = this.#options;
    const lost = new AbortController();
    const both = AbortSignal.any([signal, lost.signal]);
    this.#leading = true;
    log.info({ identity }, "leading");
    const working = work(both).catch((error: unknown) => {
      log.error({ fault: errorText(error) }, "leader's work ended");
    });
    try {
      await this.#keep(both);
    } finally {
      this.#leading = false;
      lost.abort();
      await working;
    }
    log.info({ identity }, "not leading any more");
    if (signal.aborted) await this.#giveBack();
  }

  /** Resolves when the lease could not be renewed in time, is somebody else's, or `signal` ends. */
  async #keep(signal: AbortSignal): Promise<void> {
    const deadline = (this.#options.duration * 1000 * 2) / 3;
    let renewed = performance.now();
    for (;;) {
      await this.#pause(signal);
      if (signal.aborted) return;
      if (await this.#try(signal)) renewed = performance.now();
      else if (this.#isOthers() || performance.now() - renewed > deadline) return;
    }
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const whole = (this.#options.duration * 1000 * 2) / 15;
    const time = whole * (1 + Math.random() / 5);
    await sleep(time, undefined, { signal, ref: false }).catch(() => undefined);
  }

  #isOthers(): boolean {
    const { holderIdentity } = specOf(this.#seen?.object);
    return (
      typeof holderIdentity === "string" && !["", this.#options.identity].includes(holderIdentity)
    );
  }

  /** Whether the lease is this process' after the attempt. */
  async #try(signal: AbortSignal): Promise<boolean> {
    try {
      if (!this.#leading) await this.#read(signal);
      if (this.#seen !== undefined && this.#isOthers() && !this.#expired(this.#seen)) return false;
      await this.#write(signal, {});
      this.#fault = undefined;
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      if (isConflict(error)) await this.#read(signal).catch(() => undefined);
      this.#report(error);
      return false;
    }
  }

  /** Once for each fault, not for each attempt; that somebody was quicker is none. */
  #report(error: unknown): void {
    const fault = errorText(error);
    if (isConflict(error) || fault === this.#fault) return;
    this.#fault = fault;
    this.#options.log.warn({ fault }, "lease can't be had");
  }

  #expired({ object, at }: Seen): boolean {
    const { leaseDurationSeconds } = specOf(object);
    const seconds = typeof leaseDurationSeconds === "number" ? leaseDurationSeconds : 0;
    return performance.now() - at > seconds * 1000;
  }

  async #read(signal: AbortSignal): Promise<void> {
    const { client, key } = this.#options;
    try {
      const path = objectPath(resources.leases, key);
      this.#see(await client.request({ path, signal, timeout: this.#timeout }));
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#seen = undefined;
    }
  }

  get #timeout(): number {
    return Math.max(Math.round((this.#options.duration * 1000) / 3), 500);
  }

  #see(object: unknown): void {
    if (!isJsonObject(object)) return;
    const text = JSON.stringify(object["spec"] ?? {});
    const at = this.#seen?.text === text ? this.#seen.at : performance.now();
    this.#seen = { object, text, at };
  }

  async #write(signal: AbortSignal, change: JsonObject): Promise<void> {
    const { client, key } = this.#options;
    const before = this.#seen?.object;
    const request = { body: this.#lease(before, change), signal, timeout: this.#timeout };
    const answer =
      before === undefined
        ? await client.request({
            ...request,
            method: "POST",
            path: listPath(resources.leases, key.namespace),
          })
        : await client.request({
            ...request,
            method: "PUT",
            path: objectPath(resources.leases, key),
          });
    this.#see(answer);
  }

  #lease(before: JsonObject | undefined, change: JsonObject): JsonObject {
    const { key, identity, duration } = this.#options;
    const spec = specOf(before);
    // MicroTime: six digits.
    const now = new Date().toISOString().replace("Z", "000Z");
    const mine = spec["holderIdentity"] === identity;
    const transitions = Number(spec["leaseTransitions"] ?? 0) + (before === undefined ? 0 : 1);
    const metadata = before?.["metadata"];
    return {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: isJsonObject(metadata) ? metadata : { ...key },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: Math.ceil(duration),
        renewTime: now,
        acquireTime: mine ? (spec["acquireTime"] ?? now) : now,
        leaseTransitions: mine ? (spec["leaseTransitions"] ?? 0) : transitions,
        ...change,
      },
    };
  }

  /** So that another one need not wait for its end. Best effort. */
  async #giveBack(): Promise<void> {
    const signal = AbortSignal.timeout(2_000);
    await this.#write(signal, { holderIdentity: "", leaseDurationSeconds: 1 }).catch(
      () => undefined,
    );
  }
}

function specOf(object: JsonObject | undefined): JsonObject {
  const spec = object?.["spec"];
  return isJsonObject(spec) ? spec : {};
}
