import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../../lib/base/errors.ts";
import type { Log } from "../../lib/base/log.ts";
import { KubeClient } from "../../lib/kube/client.ts";
import { Credentials } from "../../lib/kube/credentials.ts";
import { ObjectEvents } from "../../lib/kube/events.ts";
import { Lease } from "../../lib/kube/lease.ts";
import type { ControllerConfig } from "./config.ts";
import type { ControllerContext } from "./context.ts";
import { serveHealth } from "./http.ts";
import { ControllerMetrics } from "./metrics.ts";
import { leaderParts, services } from "./parts.ts";
import { Stores } from "./stores.ts";
import { Users } from "./users.ts";

const program = "podnet-controller";
/** Milliseconds that stopping may take: work under way is one request, then the lease is given back. */
const stopWithin = 10_000;

export interface RunningController {
  /** Ends the work under way, gives leadership back, closes everything. Safe to call twice. */
  stop(): Promise<void>;
}

/**
 * Starts everything and resolves when the controller serves: it may not know the cluster yet (/readyz says so, and the log line "ready"
 * comes when it does), and needs not lead. Rejects, with nothing left open, when it can't.
 */
export async function startController(
  config: ControllerConfig,
  log: Log,
): Promise<RunningController> {
  await using stack = new AsyncDisposableStack();
  const credentials = new Credentials(config.kubeconfig);
  // Better told at once than in the log, again and again.
  await credentials.current();
  const client = new KubeClient(credentials, program);
  stack.defer(() => client.close());
  const events = new ObjectEvents(client, { component: program }, log);
  stack.defer(() => events.stop());
  const stores = stack.use(new Stores(client, log));
  const users = stack.use(new Users(stores));
  const leadership = new Leadership(config, client, log);
  const metrics = new ControllerMetrics({
    watches: () => stores.watches(),
    leading: () => leadership.leading,
    droppedEvents: () => events.dropped,
  });
  const { registry } = metrics;
  const context = { config, log, client, stores, users, events, metrics, registry };
  await serve(context, stack);
  stores.start();
  stack.use(leadership.start(context));
  const parts = stack.move();
  const told = tellReady(stores, log);
  let stopped: Promise<void> | undefined;
  return {
    stop: () => {
      told.abort();
      stopped ??= Promise.race([
        parts.disposeAsync(),
        sleep(stopWithin, undefined, { ref: false }),
      ]);
      return stopped;
    },
  };
}

/** Says once that the cluster is known, unless it is ended before. */
function tellReady(stores: Stores, log: Log): AbortController {
  const ending = new AbortController();
  const tell = () => {
    // Whatever the log level: people and supervisors wait for this line.
    const loud = log.child({}, { level: "info" });
    if (!ending.signal.aborted) loud.info({ pid: process.pid }, "ready");
  };
  stores
    .ready()
    .then(tell, (error: unknown) => log.error({ fault: errorText(error) }, "not ready"));
  return ending;
}

async function serve(context: ControllerContext, stack: AsyncDisposableStack): Promise<void> {
  const { config, stores, registry, log } = context;
  if (config.metrics !== undefined) {
    const unready = () => (stores.synced ? undefined : "objects are not listed yet");
    stack.use(await serveHealth(config.metrics, { registry, unready }));
  }
  for (const service of services(context)) {
    stack.use(service);
    await service.start();
    log.info({ service: service.name }, "serves");
  }
}

/** Does the leader's work whenever this replica leads and knows the cluster. */
class Leadership {
  readonly #lease: Lease | undefined;
  #leading = false;

  constructor(config: ControllerConfig, client: KubeClient, log: Log) {
    const { namespace, leaseDuration: duration } = config;
    const identity = `${process.env["POD_NAME"] || hostname()}_${randomUUID()}`;
    const key = { namespace, name: program };
    if (config.leaderElect) this.#lease = new Lease({ client, key, identity, duration, log });
  }

  get leading(): boolean {
    return this.#leading;
  }

  start(context: ControllerContext): AsyncDisposable {
    const stopping = new AbortController();
    const running = this.#run(context, stopping.signal).catch((error: unknown) => {
      context.log.error({ fault: errorText(error) }, "leadership ended");
    });
    return {
      [Symbol.asyncDispose]: async () => {
        stopping.abort();
        await running;
      },
    };
  }

  async #run(context: ControllerContext, signal: AbortSignal): Promise<void> {
    const { stores } = context;
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    // A leader that does not know the cluster would keep another from leading.
    await Promise.race([stores.ready(), aborted]);
    const work = (leading: AbortSignal) => this.#work(context, leading);
    if (signal.aborted) return;
    if (this.#lease === undefined) await work(signal);
    else await this.#lease.run(work, signal);
  }

  async #work(context: ControllerContext, signal: AbortSignal): Promise<void> {
    this.#leading = true;
    try {
      const parts = leaderParts(context);
      await Promise.all(parts.map((part) => part.lead(signal)));
    } finally {
      this.#leading = false;
    }
  }
}
