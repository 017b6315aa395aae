import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { endOf } from "../../../lib/kube/serving-pair.ts";
import type { AdmissionKind } from "./admit.ts";
import type { Verdict } from "./review.ts";

/** What came of a review. */
export type ReviewOutcome = "allowed" | "patched" | "refused" | "failed";

/** Metrics of the webhooks; docs/admission.md describes each. */
export class AdmissionMetrics {
  readonly #reviews: Counter<"webhook" | "outcome">;
  readonly #seconds: Histogram<"webhook">;

  /** `certificate`: what is served, PEM. */
  constructor(registry: Registry, certificate: () => string | undefined) {
    const registers = [registry];
    this.#reviews = new Counter({
      name: "podnet_admission_reviews_total",
      help: "Reviews by webhook (validate, mutate) and outcome (allowed, patched, refused, failed)",
      labelNames: ["webhook", "outcome"],
      registers,
    });
    this.#seconds = new Histogram({
      name: "podnet_admission_review_seconds",
      help: "Time from a review's last byte to its answer",
      labelNames: ["webhook"],
      buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2],
      registers,
    });
    new Gauge({
      name: "podnet_webhook_certificate_end_seconds",
      help: "When the certificate ends that is served, in seconds since the epoch; 0: there is none",
      registers,
      collect() {
        const cert = certificate();
        this.set(cert === undefined ? 0 : endOf(cert) / 1000);
      },
    });
  }

  /** Counts a review and its time; a rejection counts as failed. */
  async measure(webhook: AdmissionKind, decide: () => Promise<Verdict>): Promise<Verdict> {
    const end = this.#seconds.startTimer({ webhook });
    let outcome: ReviewOutcome = "failed";
    try {
      const verdict = await decide();
      outcome = outcomeOf(verdict);
      return verdict;
    } finally {
      end();
      this.#reviews.inc({ webhook, outcome });
    }
  }
}

function outcomeOf({ refusal, patch = [] }: Verdict): ReviewOutcome {
  if (refusal !== undefined) return "refused";
  return patch.length > 0 ? "patched" : "allowed";
}
