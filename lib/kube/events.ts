import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { KubeClient } from "./client.ts";
import { isNotFound, KubeError } from "./error.ts";
import { listPath, resources } from "./resource.ts";

/** What happened to an object (a pod unless `kind` says otherwise); reason is one word for programs. */
export interface ObjectEvent {
  readonly apiVersion?: string;
  readonly kind?: string;
  /** Empty for objects of the whole cluster, whose events are kept in namespace "default". */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
}

/** Events that wait to be sent; more are dropped, oldest first: they are for people, and nothing waits for them. */
const mostWaiting = 500;
/** Events that are remembered, so that a repetition is counted instead of written anew. */
const mostRemembered = 1_000;
/** Milliseconds between two counts of one event, and between two events at all. */
const countEvery = 30_000;
const sendEvery = 100;
/** Different events of one object at once; one more comes back every half minute. */
const burst = 10;
const refill = 30_000;
const longestMessage = 1_000;

interface Known {
  readonly event: ObjectEvent;
  readonly object: string;
  readonly first: string;
  count: number;
  sent: number;
  /** The API has it: a repetition is a count there. Servers forget events after an hour. */
  written: boolean;
}

/** An event as it was emitted, repetitions counted. */
export interface EmittedEvent extends Pick<ObjectEvent, "type" | "reason" | "message"> {
  /** RFC 3339, both. */
  readonly first: string;
  readonly last: string;
  readonly count: number;
}

/** Who writes events. */
export interface EventSource {
  readonly component: string;
  /** The node, where it belongs to one. */
  readonly host?: string;
}

/** Writes events on objects, one after the other, behind everything else: nothing ever waits for them. */
export class ObjectEvents {
  readonly #client: KubeClient;
  readonly #log: Log;
  readonly #source: EventSource;
  readonly #known = new Map<string, Known>();
  readonly #tokens = new Map<string, { left: number; at: number }>();
  readonly #waiting: Known[] = [];
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #dropped = 0;

  constructor(client: KubeClient, source: EventSource, log: Log) {
    this.#client = client;
    this.#source = source;
    this.#log = log;
  }

  /** Events that were not sent: too many, or refused. */
  get dropped(): number {
    return this.#dropped;
  }

  emit(event: ObjectEvent): void {
    const key = JSON.stringify([event.uid, event.reason, event.message]);
    const known = this.#known.get(key);
    const now = Date.now();
    if (known !== undefined) {
      known.count++;
      if (isWithin(countEvery, known.sent, now)) return;
      this.#send(known);
      return;
    }
    if (!this.#takeToken(event.uid, now)) {
      this.#dropped++;
      return;
    }
    const object = `${event.name.slice(0, 200)}.${randomBytes(8).toString("hex")}`;
    const made = {
      event,
      object,
      first: new Date(now).toISOString(),
      count: 1,
      sent: 0,
      written: false,
    };
    this.#remember(key, made);
    this.#send(made);
  }

  /** What was emitted about an object lately, oldest first, as far as it is remembered. */
  about(namespace: string, name: string): EmittedEvent[] {
    return [...this.#known.values()]
      .filter(({ event }) => event.namespace === namespace && event.name === name)
      .map(({ event: { type, reason, message }, first, count, sent }) => {
        return { type, reason, message, first, last: new Date(sent).toISOString(), count };
      });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  #takeToken(uid: string, now: number): boolean {
    const before = this.#tokens.get(uid) ?? { left: burst, at: now };
    const back = Math.max(0, Math.floor((now - before.at) / refill));
    const left = Math.min(burst, before.left + back);
    this.#tokens.delete(uid);
    this.#tokens.set(uid, {
      left: Math.max(left - 1, 0),
      at: Math.min(before.at + back * refill, now),
    });
    dropOldest(this.#tokens);
    return left > 0;
  }

  #remember(key: string, known: Known): void {
    this.#known.set(key, known);
    dropOldest(this.#known);
  }

  #send(known: Known): void {
    known.sent = Date.now();
    if (this.#waiting.includes(known)) return;
    this.#waiting.push(known);
    if (this.#waiting.length > mostWaiting) {
      this.#waiting.shift();
      this.#dropped++;
    }
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const known = this.#waiting.shift();
      if (known === undefined) return;
      await this.#write(known);
      await sleep(sendEvery, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** Tried once more where the server was away or busy; then it is lost, as events may be. */
  async #write(known: Known): Promise<void> {
    const failure = await this.#attempt(known);
    if (failure === undefined) return;
    const refused = failure.status !== undefined && failure.status < 429;
    const { signal } = this.#stopping;
    if (!refused) {
      const pause = failure.retryAfter ?? 1_000;
      await sleep(pause, undefined, { signal, ref: false }).catch(() => undefined);
      if ((await this.#attempt(known)) === undefined) return;
    }
    this.#dropped++;
    this.#log.debug({ fault: failure.message }, "event not written");
  }

  async #attempt(known: Known): Promise<KubeError | undefined> {
    try {
      if (known.written) known.written = await this.#count(known);
      if (!known.written) await this.#create(known);
      known.written = true;
      return undefined;
    } catch (error) {
      return error instanceof KubeError ? error : new KubeError(errorText(error));
    }
  }

  /** Says how often it happened; false where the server has forgotten the event. */
  async #count({ event, object, count }: Known): Promise<boolean> {
    const path = `${pathOf(event)}/${object}`;
    const body = { count, lastTimestamp: new Date().toISOString() };
    const contentType = "application/merge-patch+json";
    const { signal } = this.#stopping;
    try {
      await this.#client.request({ method: "PATCH", path, body, contentType, signal });
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  async #create({ event, object, first, count }: Known): Promise<void> {
    const { apiVersion = "v1", kind = "Pod", namespace, name, uid, type, reason } = event;
    const { signal } = this.#stopping;
    const body = {
      apiVersion: "v1",
      kind: "Event",
      metadata: { name: object, namespace: placeOf(event) },
      involvedObject: { apiVersion, kind, ...(namespace === "" ? {} : { namespace }), name, uid },
      type,
      reason,
      message: event.message.slice(0, longestMessage),
      source: this.#source,
      firstTimestamp: first,
      lastTimestamp: new Date().toISOString(),
      count,
    };
    await this.#client.request({ method: "POST", path: pathOf(event), body, signal });
  }
}

/** Not when the clock was put back since: then nobody knows how long ago it was. */
function isWithin(milliseconds: number, since: number, now: number): boolean {
  return now >= since && now - since < milliseconds;
}

function placeOf({ namespace }: ObjectEvent): string {
  return namespace === "" ? "default" : namespace;
}

function pathOf(event: ObjectEvent): string {
  return listPath(resources.events, placeOf(event));
}

function dropOldest(map: Map<string, unknown>): void {
  if (map.size <= mostRemembered) return;
  const [oldest] = map.keys();
  if (oldest !== undefined) map.delete(oldest);
}
