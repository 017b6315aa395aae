import type { Registry } from "prom-client";
import type { Log } from "../../lib/base/log.ts";
import type { KubeClient } from "../../lib/kube/client.ts";
import type { ObjectEvents } from "../../lib/kube/events.ts";
import type { ControllerConfig } from "./config.ts";
import type { ControllerMetrics } from "./metrics.ts";
import type { Stores } from "./stores.ts";
import type { Users } from "./users.ts";

/** What every part of the controller works with; built once at start. */
export interface ControllerContext {
  readonly config: ControllerConfig;
  readonly log: Log;
  readonly client: KubeClient;
  readonly stores: Stores;
  /** Which pods use what; kept up to date in every replica. */
  readonly users: Users;
  readonly events: ObjectEvents;
  readonly metrics: ControllerMetrics;
  readonly registry: Registry;
}

/** Work that one replica does: the one that leads. */
export interface LeaderPart {
  readonly name: string;
  /** Works until `signal`, and resolves when nothing of it is under way. Everything that is so by then is looked at at the start. */
  lead(signal: AbortSignal): Promise<void>;
}

/** Something that every replica runs, as the webhook's server. */
export interface Service extends AsyncDisposable {
  readonly name: string;
  /** Resolves when it serves. */
  start(): Promise<void>;
}
