import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../../../lib/base/errors.ts";
import type { ListenAddress } from "../config.ts";
import type { ControllerContext, Service } from "../context.ts";
import { type Abilities, askAbilities } from "./abilities.ts";
import { type AdmissionKind, admit } from "./admit.ts";
import { AdmissionMetrics } from "./metrics.ts";
import { titleOf } from "./networks.ts";
import type { AdmitContext } from "./pods.ts";
import type { AdmissionRequest, Verdict } from "./review.ts";
import { AdmissionServer } from "./server.ts";
import { TlsKeeper } from "./tls-keeper.ts";

/** Milliseconds between questions for the server's version, which may be upgraded under us; sooner while it has not answered. */
const askEvery = 300_000;
const askAgain = 5_000;
/** Milliseconds that the start waits for the API: without it there is nothing to serve with, and nobody to ask. */
const startPatience = 5_000;

/** Namespaces whose pods a webhook must never keep from starting. */
const systemNamespaces = ["kube-system", "kube-public", "kube-node-lease"];

type AdmissionContext = Pick<
  ControllerContext,
  "client" | "config" | "log" | "registry" | "stores"
>;

/** The admission webhooks, with their certificate: what every replica serves. */
export class AdmissionService implements Service {
  readonly name = "admission";
  readonly #context: AdmissionContext;
  readonly #address: ListenAddress;
  readonly #server: AdmissionServer;
  readonly #keeper: TlsKeeper;
  readonly #admit: AdmitContext;
  readonly #stopping = new AbortController();
  #abilities: Abilities | undefined;
  #asking: Promise<void> | undefined;

  constructor(context: AdmissionContext, address: ListenAddress) {
    const { client, config, log, registry, stores } = context;
    this.#context = context;
    this.#address = address;
    this.#admit = {
      client,
      stores,
      log,
      exempt: new Set([...systemNamespaces, config.namespace]),
      gates: () => this.#abilities?.schedulingGates === true,
      ...(config.confinement === undefined ? {} : { confinement: config.confinement }),
    };
    const metrics = new AdmissionMetrics(registry, () => this.#keeper.certificate);
    this.#server = new AdmissionServer({
      decide: (kind, request) => metrics.measure(kind, () => this.#decide(kind, request)),
      onFault: (error) => log.error({ fault: errorText(error) }, "review failed"),
    });
    this.#keeper = new TlsKeeper({
      client,
      log,
      namespace: config.namespace,
      names: serviceNames(config.webhookService, config.namespace),
      serve: (pair) => this.#server.use(pair),
    });
  }

  /** Rejects when the address can't be had; an API server that is away delays the certificate, not the start. */
  async start(): Promise<void> {
    await this.#server.listen(this.#address);
    this.#asking = this.#askAbilities();
    const patience = sleep(startPatience, undefined, { ref: false });
    await Promise.race([this.#keeper.start(), patience]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping.abort();
    await this.#server[Symbol.asyncDispose]();
    await Promise.all([this.#keeper.stop(), this.#asking]);
  }

  async #decide(kind: AdmissionKind, request: AdmissionRequest): Promise<Verdict> {
    const verdict = await admit(this.#admit, kind, request);
    const { refusal } = verdict;
    if (refusal !== undefined) {
      const { operation } = request;
      const what = { object: titleOf(request), operation, fault: refusal.message.slice(0, 1_000) };
      this.#context.log.info(what, "refused");
    }
    return verdict;
  }

  async #askAbilities(): Promise<void> {
    const { client, log } = this.#context;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let pause = askEvery;
      try {
        const found = await askAbilities(client);
        if (found.version !== this.#abilities?.version) log.info(found, "API server");
        this.#abilities = found;
      } catch (error) {
        log.debug({ fault: errorText(error) }, "version of the API server not known");
        pause = askAgain;
      }
      await sleep(pause, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }
}

/** The names that an API server may call a service by. */
export function serviceNames(service: string, namespace: string): readonly string[] {
  const short = `${service}.${namespace}.svc`;
  return [short, `${short}.cluster.local`, `${service}.${namespace}`];
}
