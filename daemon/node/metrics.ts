import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import { nextStep } from "./next-steps.ts";

/** What the gauges read when somebody asks for the metrics. */
export interface MetricSources {
  readonly attachments: () => number;
  readonly sandboxes: () => number;
  readonly pending: () => number;
  readonly waiting: () => { readonly add: number; readonly del: number };
  readonly running: () => { readonly add: number; readonly del: number };
  readonly unreadable: () => number;
}

/** podnetd's metrics in Prometheus' text format; docs/metrics.md describes each. */
export class Metrics {
  readonly registry = new Registry();
  readonly #operations: Histogram<"verb" | "outcome">;
  readonly #retries: Counter<"outcome">;
  readonly #errors: Counter<"verb" | "code" | "name">;

  constructor(sources: MetricSources) {
    const registers = [this.registry];
    this.#operations = new Histogram({
      name: "podnet_operation_seconds",
      help: "Time from a CNI request's arrival to its answer, by verb and outcome (ok, or the error's code)",
      labelNames: ["verb", "outcome"],
      buckets: [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
      ],
      registers,
    });
    this.#retries = new Counter({
      name: "podnet_detach_retries_total",
      help: "Attempts of the daemon itself to finish a DEL, by outcome",
      labelNames: ["outcome"],
      registers,
    });
    this.#errors = new Counter({
      name: "podnet_cni_errors_total",
      help: "CNI calls that were answered with an error, by its code and the code's name",
      labelNames: ["verb", "code", "name"],
      registers,
    });
    this.#gauge(
      "podnet_attachments",
      "Networks attached to sandboxes of this node",
      sources.attachments,
    );
    this.#gauge(
      "podnet_sandboxes",
      "Sandboxes that have attachments on this node",
      sources.sandboxes,
    );
    this.#gauge(
      "podnet_pending_detaches",
      "Sandboxes whose DEL is not finished yet",
      sources.pending,
    );
    this.#gauge(
      "podnet_unreadable_records",
      "Records set aside because they can't be read",
      sources.unreadable,
    );
    this.#verbGauge(
      "podnet_queue_depth",
      "Operations that wait: for their container's or pod's lock, or for their turn",
      sources.waiting,
    );
    this.#verbGauge("podnet_operations_running", "Operations under way", sources.running);
    collectDefaultMetrics({ register: this.registry, eventLoopMonitoringPrecision: 200 });
  }

  /** Counts one answered request. `seconds` from arrival to answer. */
  observe(verb: string, outcome: string, seconds: number): void {
    this.#operations.observe({ verb, outcome }, seconds);
    if (outcome === "ok") return;
    this.#errors.inc({ verb, code: outcome, name: nextStep(Number(outcome)).name });
  }

  countRetry(outcome: "done" | "failed"): void {
    this.#retries.inc({ outcome });
  }

  #gauge(name: string, help: string, read: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.registry],
      collect() {
        this.set(read());
      },
    });
  }

  #verbGauge(
    name: string,
    help: string,
    read: () => { readonly add: number; readonly del: number },
  ): void {
    new Gauge({
      name,
      help,
      labelNames: ["verb"],
      registers: [this.registry],
      collect() {
        const { add, del } = read();
        this.set({ verb: "ADD" }, add);
        this.set({ verb: "DEL" }, del);
      },
    });
  }
}
