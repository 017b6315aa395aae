import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../../../lib/base/errors.ts";
import type { Log } from "../../../lib/base/log.ts";
import { Backoff } from "../../../lib/kube/backoff.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import { isConflict } from "../../../lib/kube/error.ts";
import { issueServingPair } from "../../../lib/kube/serving-pair.ts";
import {
  hasBundle,
  readConfigurations,
  readSecret,
  type StoredTls,
  writeBundle,
  writeSecret,
} from "./tls-objects.ts";
import {
  bundleOf,
  isServable,
  type KeyedCertificate,
  nextStep,
  type TlsState,
  type TlsStep,
  takeStep,
} from "./tls-state.ts";

const day = 86_400_000;

export interface TlsKeeperOptions {
  readonly client: KubeClient;
  /** Of the Secret. */
  readonly namespace: string;
  /** DNS names that the API server may call the webhooks by. */
  readonly names: readonly string[];
  readonly log: Log;
  /** What is to be served from now on. */
  readonly serve: (pair: KeyedCertificate) => void;
  /** Milliseconds: that a certificate counts (90 days). */
  readonly lifetime?: number;
  /** Milliseconds between looks at Secret and configurations (10 s). */
  readonly interval?: number;
  /** Milliseconds that an authority must have been in the configurations before its certificate is served (30 s). */
  readonly settle?: number;
  /** Milliseconds since the epoch; the API server's clock, since it is who judges the certificate, and the same for all replicas. */
  readonly clock?: () => number;
}

/**
 * Keeps the webhooks' certificate: makes it, replaces it at two thirds of its time, and tells the API server whom to trust. Every replica
 * runs one; they agree through the Secret, whose writes are bound to the version that was read.
 *
 * An authority becomes trusted before anybody serves its certificate, and stays trusted until it ends: a replica that still serves the
 * one before, for whatever reason, is believed as long as its certificate lasts.
 */
export class TlsKeeper {
  readonly #options: Required<TlsKeeperOptions>;
  readonly #backoff = new Backoff();
  readonly #stopping = new AbortController();
  /** The last state that could be served. */
  #known: TlsState | undefined;
  #served = "";
  #trust: { readonly bundle: string; readonly since: number } | undefined;
  #running: Promise<void> | undefined;

  constructor(options: TlsKeeperOptions) {
    const clock = () => options.client.serverNow();
    const defaults = { lifetime: 90 * day, interval: 10_000, settle: 30_000, clock };
    this.#options = { ...defaults, ...options };
  }

  /** The certificate that is served; undefined: none yet. */
  get certificate(): string | undefined {
    return this.#known?.current?.cert;
  }

  /** Looks once, so that there is something to serve where the API answers, and goes on looking. Never rejects. */
  async start(): Promise<void> {
    const first = Promise.withResolvers<void>();
    this.#running ??= this.#run(first.resolve);
    await first.promise;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(looked: () => void): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const pause = await this.#look();
      if (this.#known !== undefined || pause > 1_000) looked();
      await sleep(pause, undefined, { signal, ref: false }).catch(() => undefined);
    }
    looked();
  }

  /** Milliseconds to wait before the next look. */
  async #look(): Promise<number> {
    const { interval, log } = this.#options;
    try {
      await this.step();
      this.#backoff.reset();
      return interval * (0.75 + Math.random() / 2);
    } catch (error) {
      if (isConflict(error)) return 50 + Math.random() * 200;
      log.warn({ fault: errorText(error) }, "webhook certificate can't be looked after now");
      return this.#backoff.next();
    }
  }

  /**
   * One look, and at most one write of the Secret. Idempotent. The configurations are read before the Secret: so a bundle that is
   * written over theirs is never older than what they have, however long this process was stopped in between.
   */
  async step(): Promise<void> {
    const { client, namespace, clock } = this.#options;
    const configurations = await readConfigurations(client);
    const stored = await readSecret(client, namespace);
    const known = this.#restore(stored);
    const bundleBefore = bundleOf(known.state.authorities);
    const trusted = this.#isTrusted(
      bundleBefore,
      configurations.every((one) => hasBundle(one, bundleBefore)),
    );
    const rules = { names: this.#options.names, now: clock() };
    const step = known.lost ? "prepare" : nextStep(known.state, rules, trusted);
    const state = await this.#take(step, { ...known, stored });
    this.#serve(state);
    const bundle = bundleOf(state.authorities);
    for (const one of configurations) {
      if (!hasBundle(one, bundle)) await writeBundle(client, one, bundle);
    }
  }

  /** What the Secret says; where it was lost or spoilt, what this replica knows: it is still trusted. */
  #restore({ state }: StoredTls): { readonly state: TlsState; readonly lost: boolean } {
    const rules = { names: this.#options.names, now: this.#options.clock() };
    if (isServable(state, rules) || this.#known === undefined || !isServable(this.#known, rules)) {
      return { state, lost: false };
    }
    return { state: this.#known, lost: true };
  }

  #isTrusted(bundle: string, everywhere: boolean): boolean {
    const now = performance.now();
    if (!everywhere) this.#trust = undefined;
    else if (this.#trust?.bundle !== bundle) this.#trust = { bundle, since: now };
    return this.#trust !== undefined && now - this.#trust.since >= this.#options.settle;
  }

  async #take(
    step: TlsStep,
    { state, stored }: { readonly state: TlsState; readonly stored: StoredTls },
  ): Promise<TlsState> {
    if (step === "keep" || step === "wait") return state;
    const { client, namespace, names, lifetime, clock, log } = this.#options;
    const now = clock();
    const fresh = step === "promote" ? undefined : await issueServingPair({ names, lifetime, now });
    const after = takeStep(state, step, { fresh, now });
    await writeSecret(client, namespace, { stored, state: after });
    log.info({ step, authorities: after.authorities.length }, "webhook certificate");
    return after;
  }

  #serve(state: TlsState): void {
    const { current } = state;
    if (current === undefined) return;
    this.#known = state;
    if (this.#served === current.cert) return;
    this.#options.serve(current);
    this.#served = current.cert;
  }
}
