import { Gauge, type Registry } from "prom-client";
import type { CredentialLife } from "../doctor/credentials.ts";
import type { KubeNode } from "./node.ts";
import type { Publisher } from "./publish.ts";

/** What the gauges read when somebody asks for the metrics. */
export interface KubeMetricSources {
  readonly kube: Pick<KubeNode, "watches">;
  readonly publisher: Pick<Publisher, "waiting" | "droppedEvents">;
  /** podnetd's credentials; rejects while they can't be read. */
  readonly lives?: () => Promise<readonly CredentialLife[]>;
}

/** The metrics of a node that belongs to a cluster; docs/metrics.md describes each. */
export function registerKubeMetrics(
  registry: Registry,
  { kube, publisher, lives }: KubeMetricSources,
): void {
  const registers = [registry];
  new Gauge({
    name: "podnet_kube_watch_up",
    help: "1 while a watch of this kind of object is open",
    labelNames: ["kind"],
    registers,
    collect() {
      for (const { kind, current } of kube.watches()) this.set({ kind }, current ? 1 : 0);
    },
  });
  new Gauge({
    name: "podnet_kube_watch_age_seconds",
    help: "Time since the API server last said anything about this kind of object; absent before the first time",
    labelNames: ["kind"],
    registers,
    collect() {
      this.reset();
      for (const { kind, age } of kube.watches()) if (age !== undefined) this.set({ kind }, age);
    },
  });
  new Gauge({
    name: "podnet_kube_objects",
    help: "Objects of this kind that are kept",
    labelNames: ["kind"],
    registers,
    collect() {
      for (const { kind, objects } of kube.watches()) this.set({ kind }, objects);
    },
  });
  new Gauge({
    name: "podnet_status_waiting",
    help: "Pods whose status annotations are not written yet",
    registers,
    collect() {
      this.set(publisher.waiting);
    },
  });
  new Gauge({
    name: "podnet_events_dropped",
    help: "Events on pods that were not written since the start: too many, or refused",
    registers,
    collect() {
      this.set(publisher.droppedEvents);
    },
  });
  new Gauge({
    name: "podnet_credentials_end_timestamp_seconds",
    help: "When a credential of podnetd for the API server ends, in seconds since the epoch; absent where that can't be told",
    labelNames: ["kind"],
    registers,
    async collect() {
      this.reset();
      const known = await lives?.().catch(() => []);
      for (const { kind, ends } of known ?? []) {
        if (ends !== undefined) this.set({ kind }, ends / 1000);
      }
    },
  });
}
