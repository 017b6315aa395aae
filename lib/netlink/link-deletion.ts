import { randomInt } from "node:crypto";
import { errorCode } from "../base/errors.ts";
import type { Netns } from "../base/netns.ts";
import type { Connection } from "./connection.ts";
import { Events } from "./events.ts";
import { emitGroupDelete, emitLinkChange, emitLinkRef, parseLinkIdentity } from "./link.ts";
import { type Message, messageType } from "./message.ts";

/** RTM_DELLINK calls under way at once: each holds a pool thread for its grace period, and half of the pool is left to others. */
const MOST_CALLS = 8;
const AF_BRIDGE = 7;

type Calls = Pick<Connection, "execute" | "executeDetached">;

interface Waiter {
  readonly index: number;
  readonly promise: Promise<boolean>;
  settle(deleted: boolean): void;
  fail(error: unknown): void;
}

/**
 * Deletes links of one namespace and answers as soon as the kernel reports them gone. That is half a millisecond after the request, while
 * the call itself comes back only after an RCU grace period of some 20 ms; it goes on in a pool thread. Links that are to go at the same time
 * are put into a group of their own and go in one call, which takes no longer than one link.
 */
export class LinkDeletion {
  readonly #connection: Calls;
  readonly #netns: Netns | undefined;
  readonly #openEvents: typeof Events.open;
  readonly #waiters = new Map<number, Waiter>();
  #collected: Waiter[] = [];
  #calls = 0;
  #events: Events | undefined;

  constructor(connection: Calls, netns: Netns | undefined, openEvents = Events.open) {
    this.#connection = connection;
    this.#netns = netns;
    this.#openEvents = openEvents;
  }

  /** Resolves to true when the link is gone, to false when there was none. Rejects with a NetlinkError. */
  delete(index: number): Promise<boolean> {
    const known = this.#waiters.get(index);
    if (known !== undefined) return known.promise;
    const waiter = this.#wait(index);
    this.#collected.push(waiter);
    queueMicrotask(() => this.#start());
    return waiter.promise;
  }

  #wait(index: number): Waiter {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const forget = () => {
      // A later deletion of the same index may wait by now.
      if (this.#waiters.get(index) === waiter) this.#waiters.delete(index);
      if (this.#waiters.size === 0) this.#unsubscribe();
    };
    const waiter: Waiter = {
      index,
      promise,
      settle: (deleted) => {
        forget();
        resolve(deleted);
      },
      fail: (error) => {
        forget();
        reject(error);
      },
    };
    this.#waiters.set(index, waiter);
    return waiter;
  }

  #start(): void {
    if (this.#collected.length === 0 || this.#calls >= MOST_CALLS) return;
    const batch = this.#collected.splice(0);
    this.#subscribe();
    this.#calls += 1;
    void this.#call(batch).finally(() => {
      this.#calls -= 1;
      this.#start();
    });
  }

  /** Never rejects: failures go to the waiters. */
  async #call(batch: readonly Waiter[]): Promise<void> {
    if (batch.length > 1 && (await this.#deleteGroup(batch))) return;
    await Promise.all(batch.map((waiter) => this.#deleteOne(waiter)));
  }

  async #deleteOne(waiter: Waiter): Promise<void> {
    const request = {
      type: messageType.delLink,
      flags: 0,
      body: emitLinkRef({ index: waiter.index }),
    };
    try {
      await this.#connection.executeDetached(`delete link ${waiter.index}`, request);
      waiter.settle(true);
    } catch (error) {
      if (errorCode(error) === "ENODEV") waiter.settle(false);
      else waiter.fail(error);
    }
  }

  /** false: it did not work for all of them, and each has to be tried by itself to know why. */
  async #deleteGroup(batch: readonly Waiter[]): Promise<boolean> {
    const group = randomInt(0x4000_0000, 0x7fff_ffff);
    const marks = batch.map(({ index }) => {
      const body = emitLinkChange(index, { group });
      return this.#connection.execute(`mark link ${index} for deletion`, {
        type: messageType.newLink,
        flags: 0,
        body,
      });
    });
    const marked = await Promise.allSettled(marks);
    if (marked.some(({ status }) => status === "rejected")) return false;
    const request = { type: messageType.delLink, flags: 0, body: emitGroupDelete(group) };
    try {
      await this.#connection.executeDetached(`delete links of group ${group}`, request);
    } catch {
      return false;
    }
    for (const waiter of batch) waiter.settle(true);
    return true;
  }

  #subscribe(): void {
    if (this.#events !== undefined) return;
    try {
      this.#events = this.#openEvents(this.#netns, ["link"], {
        event: (message) => this.#hear(message),
        resynchronise: () => void this.#lookForAll(),
      });
    } catch {
      // Without reports (the namespace' descriptor was closed before, or descriptors are short) the call's own return is what tells.
      this.#events = undefined;
    }
  }

  #unsubscribe(): void {
    this.#events?.close();
    this.#events = undefined;
  }

  #hear(message: Message): void {
    if (message.type !== messageType.delLink) return;
    const { family, index } = parseLinkIdentity(message.body);
    // A port that leaves its bridge is reported as deleted too, in the bridge's family.
    if (family !== AF_BRIDGE) this.#waiters.get(index)?.settle(true);
  }

  /** Reports were lost: looks once which links are still there. Never rejects: the calls' own returns settle what is left. */
  async #lookForAll(): Promise<void> {
    await Promise.all(
      [...this.#waiters.values()].map((waiter) => this.#lookFor(waiter).catch(() => undefined)),
    );
  }

  async #lookFor(waiter: Waiter): Promise<void> {
    const request = {
      type: messageType.getLink,
      flags: 0,
      body: emitLinkRef({ index: waiter.index }),
    };
    try {
      await this.#connection.execute(`get link ${waiter.index}`, request);
    } catch (error) {
      if (errorCode(error) === "ENODEV") waiter.settle(true);
      else throw error;
    }
  }
}
