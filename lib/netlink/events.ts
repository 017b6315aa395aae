import { errorCode } from "../base/errors.ts";
import { type ReadinessWatch, watchReadable } from "../base/libc.ts";
import type { Netns } from "../base/netns.ts";
import { type Message, parseMessages } from "./message.ts";
import { NetlinkSocket } from "./socket.ts";

/** Multicast groups of linux/rtnetlink.h (RTNLGRP_*). */
const groupNumbers = { link: [1], address: [5, 9], route: [7, 11] } as const;
export type EventGroup = keyof typeof groupNumbers;

/** Who hears of changes. The functions are called on the event loop and must not throw. */
export interface EventListener {
  /** A message of the kernel: RTM_NEWLINK, RTM_DELADDR, ... for the codecs to parse. AF_BRIDGE link messages come too. */
  event(message: Message): void;
  /** Messages were lost, or none can be trusted: read everything anew. */
  resynchronise(): void;
}

/** A subscription to the changes of a namespace's links, addresses or routes. Survives overruns; close it. */
export class Events {
  readonly #socket: NetlinkSocket;
  readonly #listener: EventListener;
  readonly #watch: ReadinessWatch;

  private constructor(socket: NetlinkSocket, listener: EventListener) {
    this.#socket = socket;
    this.#listener = listener;
    this.#watch = watchReadable(socket.fd, (failed) => this.#read(failed));
  }

  /** Everything that changes after the return is reported. Throws a SystemError. */
  static open(
    netns: Netns | undefined,
    groups: readonly EventGroup[],
    listener: EventListener,
  ): Events {
    const socket = NetlinkSocket.open(
      netns,
      groups.flatMap((group) => groupNumbers[group]),
    );
    try {
      return new Events(socket, listener);
    } catch (error) {
      socket.close();
      throw error;
    }
  }

  /** Lets the process end while the subscription is open. */
  unref(): this {
    this.#watch.unref();
    return this;
  }

  #read(failed: boolean): void {
    const lost = this.#drain() || failed;
    if (this.#socket.closed) return;
    if (failed) this.#watch.restart();
    if (lost) this.#listener.resynchronise();
  }

  /** Reports what there is. true: something was lost. */
  #drain(): boolean {
    let lost = false;
    while (!this.#socket.closed) {
      try {
        const datagram = this.#socket.receive();
        if (datagram === undefined) break;
        this.#report(datagram);
      } catch (error) {
        // ENOBUFS: the queue overran. A datagram that makes no sense loses knowledge just the same.
        lost = true;
        if (isFinal(error)) break;
      }
    }
    return lost;
  }

  #report(datagram: Buffer): void {
    for (const message of parseMessages(datagram)) {
      // The listener may close the subscription at any message.
      if (!this.#socket.closed) this.#listener.event(message);
    }
  }

  /** Idempotent. Nothing is reported afterwards. */
  close(): void {
    if (this.#socket.closed) return;
    this.#watch.close();
    this.#socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Whether reading again would fail again. */
function isFinal(error: unknown): boolean {
  const code = errorCode(error);
  return code !== undefined && code !== "ENOBUFS";
}
