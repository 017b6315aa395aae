import assert from "node:assert/strict";
import { before, describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { KubeObject } from "../../../helpers/whole-cluster-object.ts";
import { leftovers, nothingLeft } from "./leftovers.ts";
import { own, type Whole } from "./networks.ts";

/** A full run is 300; PODNET_CHURN_PODS says another number. */
const count = Number(process.env["PODNET_CHURN_PODS"] ?? "45");
const perSecond = 5;
/** Pods that may wait for their end at a time: a small machine starts fewer a second than are asked for. */
const mostAlive = 40;

const wish = {
  [own]: '[{"name":"default"},{"name":"blue"},{"name":"red","interfaceName":"data0"}]',
};
const asked = ["data0", "eth0", "net1"];

/** Pods that are created five a second and ended as soon as their first process has said what it found. */
class Churn {
  readonly records: { readonly name: string; readonly found: readonly string[] }[] = [];
  readonly #whole: Whole;
  readonly #prefix: string;
  readonly #alive = new Map<string, KubeObject>();
  created = 0;

  constructor(whole: Whole, prefix: string) {
    this.#whole = whole;
    this.#prefix = prefix;
  }

  /** Runs until all were created, have said what they found, and were ended. */
  async run(signal: AbortSignal): Promise<void> {
    const ending = this.#endAll(signal);
    const started = performance.now();
    for (; this.created < count && !signal.aborted; this.created += 1) {
      const due = started + (this.created * 1000) / perSecond - performance.now();
      if (due > 0) await sleep(due);
      while (this.#alive.size >= mostAlive && !signal.aborted) await sleep(100);
      await this.#create();
    }
    await ending;
  }

  async #create(): Promise<void> {
    const name = `${this.#prefix}-${this.created}`;
    const pod = await this.#whole.cluster.pods.create({
      name,
      annotations: wish,
      labels: { churn: this.#prefix },
    });
    this.#alive.set(name, pod);
  }

  async #endAll(signal: AbortSignal): Promise<void> {
    const { cluster } = this.#whole;
    while (this.records.length < count && !signal.aborted) {
      for (const [name, pod] of this.#alive) {
        const seen = cluster.pods.seen(pod);
        if (seen === undefined) continue;
        this.records.push({ name, found: seen.map((one) => one.name) });
        await cluster.pods.end(`default/${name}`);
        this.#alive.delete(name);
      }
      await sleep(50);
    }
  }

  /** Names of pods that never said anything. */
  get silent(): string[] {
    return [...this.#alive.keys()];
  }

  /** After a failure: others need the node. */
  async endAlive(): Promise<void> {
    for (const name of this.#alive.keys()) await this.#whole.cluster.pods.end(`default/${name}`);
  }
}

/** What a pod that is older than podnet has, where the tests of the churn run alone. */
let others: readonly string[] = [];

interface ChurnOptions {
  readonly context: TestContext;
  readonly prefix: string;
  readonly disturb: () => Promise<void>;
}

async function churn(whole: Whole, { context, prefix, disturb }: ChurnOptions): Promise<void> {
  const { cluster, podnet } = whole;
  const started = performance.now();
  const pods = new Churn(whole, prefix);
  const stop = new AbortController();
  const limit = AbortSignal.timeout(300_000 + count * 4_000);
  const running = pods.run(AbortSignal.any([limit, stop.signal]));
  const begun = () => (pods.records.length > count / 9 ? true : undefined);
  try {
    await cluster.eventually("some pods", begun, { seconds: 240, about: () => podnet.about() });
    await disturb();
    await running;
  } catch (error) {
    stop.abort();
    await running.catch(() => undefined);
    await pods.endAlive();
    throw error;
  } finally {
    stop.abort();
  }
  assert.deepEqual(pods.silent, [], `pods that never started\n${podnet.about()}`);
  const short = pods.records.filter(({ found }) => found.join(" ") !== asked.join(" "));
  assert.deepEqual(
    short,
    [],
    "pods whose first process found other interfaces than were asked for",
  );
  const seconds = (performance.now() - started) / 1000;
  const rate = (count / seconds).toFixed(2);
  context.diagnostic(
    `${count} pods in ${Math.round(seconds)} s, ${rate} a second; ${short.length} fell short`,
  );
  // What the kubelet still has to take down is not the next one's load.
  await nothingLeft(cluster, others);
}

export function churnTests(whole: () => Whole): void {
  describe(`${count} pods come and go at ${perSecond} a second`, () => {
    before(() => {
      others = leftovers(whole().cluster);
    });

    test("while the DaemonSet is restarted: none starts without its interfaces", async (context) => {
      const { podnet } = whole();
      const disturb = async () => {
        podnet.restart();
        await podnet.ready();
      };
      await churn(whole(), { context, prefix: "restart", disturb });
    });

    test("while podnetd is killed, twice", async (context) => {
      const { podnet } = whole();
      const disturb = async () => {
        await podnet.kill();
        await podnet.kill();
      };
      await churn(whole(), { context, prefix: "kill", disturb });
    });

    test("while another build takes its place", async (context) => {
      const { podnet } = whole();
      const disturb = async () => {
        podnet.upgrade("next");
        await podnet.ready();
      };
      await churn(whole(), { context, prefix: "upgrade", disturb });
    });

    test("afterwards none is stuck, and nothing of theirs is left", async () => {
      const { cluster, podnet } = whole();
      await nothingLeft(cluster, others);
      assert.equal(podnet.podnetctl("ls", "-o", "json").trim(), "[]");
      await cluster.eventually(
        "the pods gone",
        async () => ((await cluster.pods.list("default", "churn")).length === 0 ? true : undefined),
        { seconds: 150, about: () => podnet.about() },
      );
    });
  });
}
