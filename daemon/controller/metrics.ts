import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { WatchState } from "./stores.ts";

/** What the gauges read when somebody asks for the metrics. */
export interface MetricSources {
  readonly watches: () => readonly WatchState[];
  readonly leading: () => boolean;
  readonly droppedEvents: () => number;
}

/** The controller's metrics; docs/controller.md describes each. */
export class ControllerMetrics {
  readonly registry = new Registry();
  readonly reconciles: Histogram<"queue" | "outcome">;
  readonly writes: Counter<"kind" | "what">;
  readonly #depths = new Map<string, () => number>();

  constructor(sources: MetricSources) {
    const registers = [this.registry];
    collectDefaultMetrics({ register: this.registry });
    this.reconciles = new Histogram({
      name: "podnet_controller_reconcile_seconds",
      help: "Time that one object took, by queue and outcome (ok, conflict, error)",
      labelNames: ["queue", "outcome"],
      buckets: [0.001, 0.01, 0.1, 1, 10],
      registers,
    });
    this.writes = new Counter({
      name: "podnet_controller_writes_total",
      help: "Writes that the API server accepted, by kind of object and what was written",
      labelNames: ["kind", "what"],
      registers,
    });
    this.#gauges(sources);
  }

  /** Tells of a queue's length from now on; the last one of a name counts. */
  watchQueue(name: string, depth: () => number): void {
    this.#depths.set(name, depth);
  }

  #gauges({ watches, leading, droppedEvents }: MetricSources): void {
    const registers = [this.registry];
    const depths = this.#depths;
    new Gauge({
      name: "podnet_controller_leading",
      help: "1 in the replica that does the work",
      registers,
      collect() {
        this.set(leading() ? 1 : 0);
      },
    });
    new Gauge({
      name: "podnet_controller_queue_depth",
      help: "Objects that wait to be looked at",
      labelNames: ["queue"],
      registers,
      collect() {
        for (const [queue, depth] of depths) this.set({ queue }, depth());
      },
    });
    new Gauge({
      name: "podnet_controller_watch_up",
      help: "1 while a watch of this kind of object is open",
      labelNames: ["kind"],
      registers,
      collect() {
        for (const { kind, current } of watches()) this.set({ kind }, current ? 1 : 0);
      },
    });
    new Gauge({
      name: "podnet_controller_objects",
      help: "Objects of this kind that are kept",
      labelNames: ["kind"],
      registers,
      collect() {
        for (const { kind, objects } of watches()) this.set({ kind }, objects);
      },
    });
    new Gauge({
      name: "podnet_controller_events_dropped",
      help: "Events that were not written since the start: too many, or refused",
      registers,
      collect() {
        this.set(droppedEvents());
      },
    });
  }
}
