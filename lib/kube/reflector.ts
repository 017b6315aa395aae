import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../base/errors.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import type { Log } from "../base/log.ts";
import { Backoff } from "./backoff.ts";
import { type KubeClient, statusOf } from "./client.ts";
import { isExpired, isNotFound, KubeError } from "./error.ts";
import { listPages } from "./list.ts";
import { acceptOf, keyText, listPath, type ObjectKey, type Resource } from "./resource.ts";

/** Milliseconds between looks for a kind that the server does not have (yet). */
const absentPause = 30_000;

export interface ReflectorOptions<T> {
  readonly client: KubeClient;
  readonly resource: Resource;
  readonly log: Log;
  /** What is kept of an object; must not throw. */
  readonly keep: (object: JsonObject) => T;
  readonly fieldSelector?: string;
  /** An object came, changed (`value`) or went (undefined); `before`: what was known of it. Called after the copy has changed. */
  readonly onChange?: (key: ObjectKey, value: T | undefined, before: T | undefined) => void;
}

/**
 * A copy of all objects of one kind, kept up to date by list and watch: resumed from the last resource version (bookmarks count),
 * listed again when that has expired, with growing pauses after failures. What is known stays known while the server is away.
 */
export class Reflector<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #backoff = new Backoff();
  readonly #stopping = new AbortController();
  readonly #firstList = Promise.withResolvers<void>();
  #objects = new Map<string, { readonly key: ObjectKey; readonly value: T }>();
  #version: string | undefined;
  #watching = false;
  #synced = false;
  #contact = 0;
  #fault: string | undefined;
  #running: Promise<void> | undefined;

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
  }

  get(key: ObjectKey): T | undefined {
    return this.#objects.get(keyText(key))?.value;
  }

  entries(): { readonly key: ObjectKey; readonly value: T }[] {
    return [...this.#objects.values()];
  }

  get size(): number {
    return this.#objects.size;
  }

  /** A list was read once: what is not here was not there. */
  get synced(): boolean {
    return this.#synced;
  }

  /** A watch is open now. */
  get current(): boolean {
    return this.#watching;
  }

  /** When the server last said anything, in milliseconds of performance.now(); 0: never. */
  get contact(): number {
    return this.#contact;
  }

  /** Why it is not current; undefined when it is. */
  get fault(): string | undefined {
    return this.#fault;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Resolves when the first list was read. */
  async ready(): Promise<void> {
    await this.#firstList.promise;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const pause = await this.#once(signal);
      if (pause > 0) await sleep(pause, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** One list (unless a watch can be resumed) and one watch; gives the milliseconds to wait before the next. */
  async #once(signal: AbortSignal): Promise<number> {
    try {
      if (this.#version === undefined) await this.#list(signal);
      await this.#watch(signal);
      this.#backoff.reset();
      // Watches that end at once must not become a busy loop.
      return 100;
    } catch (error) {
      if (signal.aborted) return 0;
      return this.#failed(error);
    } finally {
      this.#watching = false;
    }
  }

  #failed(error: unknown): number {
    const { resource, log } = this.#options;
    if (isExpired(error)) {
      this.#version = undefined;
      return this.#backoff.next() / 10;
    }
    const text = errorText(error);
    if (isNotFound(error)) {
      this.#version = undefined;
      this.#replace(new Map());
      this.#fault = `the API server does not have ${resource.kind}`;
      log.debug({ kind: resource.kind }, "kind is not there");
      return absentPause;
    }
    if (this.#fault !== text) {
      log.warn({ kind: resource.kind, fault: text }, "watch interrupted");
      this.#fault = text;
    }
    return this.#backoff.next(error instanceof KubeError ? error.retryAfter : 0);
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { client, resource } = this.#options;
    const found = new Map<string, { key: ObjectKey; value: T }>();
    let version = "";
    for await (const page of listPages(client, resource, { query: this.#selector(), signal })) {
      for (const item of page.items) {
        const key = keyOf(item);
        if (key === undefined) continue;
        const value = this.#keep(key, item);
        if (value !== undefined) found.set(keyText(key), { key, value });
      }
      ({ version } = page);
    }
    this.#version = version;
    this.#replace(found);
    this.#touch();
  }

  #selector(): Record<string, string> {
    const { fieldSelector } = this.#options;
    return fieldSelector === undefined ? {} : { fieldSelector };
  }

  #replace(found: Map<string, { readonly key: ObjectKey; readonly value: T }>): void {
    const before = this.#objects;
    this.#objects = found;
    this.#synced = true;
    this.#firstList.resolve();
    for (const [text, { key, value }] of before) {
      if (!found.has(text)) this.#tell(key, undefined, value);
    }
    for (const [text, { key, value }] of found) this.#tell(key, value, before.get(text)?.value);
  }

  #touch(): void {
    this.#contact = performance.now();
    this.#fault = undefined;
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const { client, resource } = this.#options;
    const minutes = 5 + Math.random() * 5;
    const events = client.watch({
      path: listPath(resource),
      accept: acceptOf(resource, false),
      query: {
        ...this.#selector(),
        watch: "true",
        allowWatchBookmarks: "true",
        resourceVersion: this.#version ?? "",
        timeoutSeconds: String(Math.round(minutes * 60)),
      },
      signal,
    });
    this.#watching = true;
    for await (const { type, object } of events) this.#apply(type, object);
  }

  #apply(type: string, object: unknown): void {
    if (type === "ERROR") {
      const { message = "watch error", reason, code } = statusOf(object);
      throw new KubeError(message, { status: code, reason });
    }
    if (!isJsonObject(object)) return;
    const key = keyOf(object);
    const version = versionOf(object);
    if (version !== undefined) this.#version = version;
    this.#touch();
    if (type === "BOOKMARK" || key === undefined) return;
    this.#set(key, type === "DELETED" ? undefined : this.#keep(key, object));
  }

  /**
   * Takes the answer to an own write at once, ahead of the watch, so that nobody works with what was there before. Only for a write
   * that the server made on the very version that is known here (`isStill` says so): else the watch knows more.
   */
  learn(object: unknown, isStill: (known: T | undefined) => boolean): void {
    const key = isJsonObject(object) ? keyOf(object) : undefined;
    if (!isJsonObject(object) || key === undefined || !isStill(this.get(key))) return;
    this.#set(key, this.#keep(key, object));
  }

  #set(key: ObjectKey, value: T | undefined): void {
    const text = keyText(key);
    const before = this.#objects.get(text)?.value;
    if (value === undefined) this.#objects.delete(text);
    else this.#objects.set(text, { key, value });
    this.#tell(key, value, before);
  }

  /** One object that can't be kept, by a fault of podnet's own, must not hide all others: it counts as absent. */
  #keep(key: ObjectKey, object: JsonObject): T | undefined {
    const { keep, resource, log } = this.#options;
    try {
      return keep(object);
    } catch (error) {
      log.error({ kind: resource.kind, key: keyText(key), fault: errorText(error) }, "not kept");
      return undefined;
    }
  }

  /** A listener that fails must not keep the others' changes from it. */
  #tell(key: ObjectKey, value: T | undefined, before: T | undefined): void {
    const { onChange, resource, log } = this.#options;
    try {
      onChange?.(key, value, before);
    } catch (error) {
      log.error({ kind: resource.kind, key: keyText(key), fault: errorText(error) }, "not told");
    }
  }
}

/** undefined: it has no sound name. */
export function keyOf({ metadata }: JsonObject): ObjectKey | undefined {
  if (!isJsonObject(metadata)) return undefined;
  const { name, namespace = "" } = metadata;
  return typeof name === "string" && typeof namespace === "string"
    ? { namespace, name }
    : undefined;
}

function versionOf({ metadata }: JsonObject): string | undefined {
  if (!isJsonObject(metadata)) return undefined;
  const { resourceVersion } = metadata;
  return typeof resourceVersion === "string" ? resourceVersion : undefined;
}
