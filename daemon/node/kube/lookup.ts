import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../../../lib/base/errors.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { isJsonObject } from "../../../lib/base/json.ts";
import type { Log } from "../../../lib/base/log.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import { isNotFound } from "../../../lib/kube/error.ts";
import { Reflector } from "../../../lib/kube/reflector.ts";
import {
  acceptOf,
  keyText,
  type ObjectKey,
  objectPath,
  type Resource,
} from "../../../lib/kube/resource.ts";

/** Milliseconds that a live question may take, and that its "there is none" counts while a watch is open. */
const questionTimeout = 5_000;
const absenceCounts = 2_000;
/**
 * Milliseconds after which a question that has no answer goes out a second time: a connection whose other end is gone without a word (a
 * balancer, a server that was cut off) is noticed by nobody until then.
 */
const secondQuestion = 1_000;
/** So many absences are remembered. */
const mostAbsences = 4_096;

export interface LookupOptions<T> {
  readonly client: KubeClient;
  readonly resource: Resource;
  readonly log: Log;
  /** What is kept of an object; must not throw. */
  readonly keep: (object: JsonObject) => T;
  readonly fieldSelector?: string;
  readonly onChange?: (key: ObjectKey, value: T | undefined) => void;
  /** Milliseconds before a question is put again; default 1 s. */
  readonly askAgain?: number;
}

/**
 * Objects of one kind: from the watched copy at once, and from the API itself where the copy has no answer. Nothing found is an
 * answer only when the API gave it.
 */
export class Lookup<T> implements AsyncDisposable {
  readonly reflector: Reflector<T>;
  readonly #options: LookupOptions<T>;
  readonly #asking = new Map<string, Promise<T | undefined>>();
  readonly #absent = new Map<string, number>();
  readonly #waiting = new Map<string, Set<(value: T) => void>>();

  constructor(options: LookupOptions<T>) {
    this.#options = options;
    this.reflector = new Reflector({
      ...options,
      onChange: (key, value) => {
        this.#absent.delete(keyText(key));
        if (value !== undefined)
          for (const tell of this.#waiting.get(keyText(key)) ?? []) tell(value);
        options.onChange?.(key, value);
      },
    });
    this.reflector.start();
  }

  /** undefined: there is none. Rejects with code 11 when the copy does not have it and the API can't be asked. */
  async find(key: ObjectKey): Promise<T | undefined> {
    const known = this.reflector.get(key);
    if (known !== undefined) return known;
    if (this.#isKnownAbsent(keyText(key))) return undefined;
    return await this.findNew(key, () => true);
  }

  /**
   * The object as the API has it or, should the watch bring one that is `wanted` before the API answers, that one: a pod's first call
   * often comes a moment before the watch's event. Rejects as `find`.
   */
  async findNew(key: ObjectKey, wanted: (value: T) => boolean): Promise<T | undefined> {
    const text = keyText(key);
    const { promise: watched, resolve } = Promise.withResolvers<T>();
    const tell = (value: T) => {
      if (wanted(value)) resolve(value);
    };
    const all = this.#waiting.get(text) ?? new Set();
    this.#waiting.set(text, all.add(tell));
    try {
      return await Promise.race([this.ask(key), watched]);
    } finally {
      all.delete(tell);
      if (all.size === 0) this.#waiting.delete(text);
    }
  }

  /** As `find`, past the copy. Questions for one object that come together are asked once. */
  async ask(key: ObjectKey): Promise<T | undefined> {
    const text = keyText(key);
    const under = this.#asking.get(text);
    if (under !== undefined) return await under;
    const asking = this.#ask(key).finally(() => this.#asking.delete(text));
    this.#asking.set(text, asking);
    return await asking;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.reflector.stop();
  }

  #isKnownAbsent(text: string): boolean {
    const since = this.#absent.get(text);
    if (since === undefined || !this.reflector.current) return false;
    const age = Date.now() - since;
    // Less than nothing: the clock was put back since, and nobody knows how old it is.
    return age >= 0 && age < absenceCounts;
  }

  async #ask(key: ObjectKey): Promise<T | undefined> {
    const { resource, keep } = this.#options;
    try {
      const object = await this.#question(key);
      return isJsonObject(object) ? keep(object) : undefined;
    } catch (error) {
      if (isNotFound(error)) {
        if (this.#absent.size >= mostAbsences) this.#absent.clear();
        this.#absent.set(keyText(key), Date.now());
        return undefined;
      }
      const message = `find ${resource.kind} "${keyText(key)}": the API server can't be asked: ${errorText(error)}`;
      throw new CniError(cniCode.tryAgainLater, message, { cause: error });
    }
  }

  /** Twice if need be, and whichever is answered first counts. */
  async #question(key: ObjectKey): Promise<unknown> {
    const { client, resource, askAgain = secondQuestion } = this.#options;
    const ending = new AbortController();
    const send = async (timeout: number) =>
      await client.request({
        path: objectPath(resource, key),
        accept: acceptOf(resource, false),
        timeout,
        signal: ending.signal,
      });
    const again = async () => {
      await sleep(askAgain, undefined, { signal: ending.signal });
      return await send(questionTimeout - askAgain);
    };
    try {
      return await Promise.race([send(questionTimeout), again()]);
    } finally {
      ending.abort();
    }
  }
}
