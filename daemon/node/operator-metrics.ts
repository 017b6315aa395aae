import { Gauge, type Registry } from "prom-client";
import type { CallsUnderway } from "./calls-underway.ts";
import { leakKinds } from "./doctor/leaks.ts";
import type { LeakWatch } from "./leak-watch.ts";

/** What the gauges read when somebody asks for the metrics. */
export interface OperatorMetricSources {
  readonly version: string;
  readonly calls: Pick<CallsUnderway, "oldest">;
  readonly leaks: Pick<LeakWatch, "counts">;
  /** Seconds since the oldest DEL that is not finished yet began; 0: none. */
  readonly oldestPending: () => number;
  /** Sandboxes of a previous Multus that its files still name. */
  readonly foreignSandboxes: () => Promise<number>;
}

/** Metrics for whoever is woken at night; docs/metrics.md describes each. */
export function registerOperatorMetrics(
  registry: Registry,
  { version, calls, leaks, oldestPending, foreignSandboxes }: OperatorMetricSources,
): void {
  const registers = [registry];
  new Gauge({
    name: "podnet_build_info",
    help: "1, with the version of podnetd and of its Node",
    labelNames: ["version", "node"],
    registers,
  }).set({ version, node: process.version }, 1);
  new Gauge({
    name: "podnet_oldest_operation_seconds",
    help: "Time since the oldest operation that is not answered yet arrived, waiting or running; 0: there is none",
    labelNames: ["verb"],
    registers,
    collect() {
      this.set({ verb: "ADD" }, calls.oldest("add"));
      this.set({ verb: "DEL" }, calls.oldest("del"));
    },
  });
  new Gauge({
    name: "podnet_oldest_pending_seconds",
    help: "Time since the oldest DEL that is not finished began; 0: there is none",
    registers,
    collect() {
      this.set(oldestPending());
    },
  });
  new Gauge({
    name: "podnet_leaks",
    help: "Things kept for nobody, as found by the last look (every ten minutes)",
    labelNames: ["kind"],
    registers,
    collect() {
      const counts = leaks.counts();
      for (const kind of leakKinds) this.set({ kind }, counts[kind]);
    },
  });
  new Gauge({
    name: "podnet_foreign_sandboxes",
    help: "Sandboxes that a previous Multus attached and its files still name",
    registers,
    async collect() {
      // A folder that can't be read must not take the other metrics away.
      const number = await foreignSandboxes().catch(() => undefined);
      if (number === undefined) this.reset();
      else this.set(number);
    },
  });
}
