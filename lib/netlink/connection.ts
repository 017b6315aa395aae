import { constants } from "node:os";
import { errorCode, errorText } from "../base/errors.ts";
import type { Netns } from "../base/netns.ts";
import { SystemError } from "../base/system-error.ts";
import { acknowledgementError, NetlinkError } from "./error.ts";
import {
  emitMessage,
  type Message,
  messageFlag,
  messageType,
  parseAcknowledgement,
  parseMessages,
  type Request,
} from "./message.ts";
import { type RtnlPressure, rtnlPressure } from "./pressure.ts";
import { NetlinkSocket } from "./socket.ts";

/**
 * How often a dump that changed under the reader is begun again. While others make and delete links without a pause RTNL goes from hand to
 * hand, and most dumps of more than one datagram are interrupted: with five such writers, 25 in a row were seen (within two seconds).
 */
const DUMP_ATTEMPTS = 100;
/** Bounds of one datagram of requests: their answers must fit the socket's receive buffer. */
const MOST_REQUESTS = 32;

/** What a connection needs of a socket: a NetlinkSocket, or a function that plays the kernel. */
export type Transport = Pick<
  NetlinkSocket,
  "closed" | "send" | "sendAsync" | "receive" | "receiveAsync" | "lease" | "close"
>;

interface Pending {
  readonly operation: string;
  readonly request: Request;
  readonly replies: Message[];
  /** The one reply ends it: no acknowledgement was asked for. */
  readonly single: boolean;
  interrupted: boolean;
  settle(error: unknown): void;
}

/**
 * Requests and answers over one socket. Calls may come from several flows at any time: they are carried out in the order in which they
 * were made. While RTNL is contended they go through the pool, and what was asked within one turn goes in one datagram.
 */
export class Connection {
  readonly #socket: Transport;
  readonly #pressure: RtnlPressure;
  readonly #pending = new Map<number, Pending>();
  readonly #queue: Pending[] = [];
  #dumping: Promise<void> | undefined;
  #working = false;
  #sequence = 0;

  constructor(socket: Transport, pressure: RtnlPressure) {
    this.#socket = socket;
    this.#pressure = pressure;
  }

  /** `protocol` is a NETLINK_* number (default: NETLINK_ROUTE). Throws a SystemError. */
  static open(netns: Netns | undefined, protocol?: number, pressure = rtnlPressure): Connection {
    return new Connection(NetlinkSocket.open(netns, [], protocol), pressure);
  }

  /** Carries out one request and resolves to its replies. Rejects with a NetlinkError when the kernel refuses it. */
  execute(operation: string, request: Request): Promise<Message[]> {
    return this.#enqueue(operation, { ...request, flags: request.flags | messageFlag.ack });
  }

  /** Asks for one object, of which the kernel reports one or refuses. Rejects with a NetlinkError when it refuses. */
  async query(operation: string, request: Request): Promise<Message> {
    const [reply] = await this.#enqueue(operation, request);
    if (reply === undefined) throw new Error(`${operation}: the kernel's answer is empty`);
    return reply;
  }

  /** All messages of a dump, begun again while the data changed under it. Rejects with a NetlinkError. */
  async dump(operation: string, request: Omit<Request, "flags">): Promise<Message[]> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#enqueue(operation, { ...request, flags: messageFlag.dump });
      } catch (error) {
        if (errorCode(error) !== "EINTR" || attempt >= DUMP_ATTEMPTS) throw error;
      }
    }
  }

  /**
   * Carries out one request beside the others: it may take long, and neither waits for the ones before nor holds up the later ones.
   * The socket outlives it, even when the connection is closed meanwhile.
   */
  async executeDetached(operation: string, request: Request): Promise<void> {
    this.#requireOpen(operation);
    const outcome = this.#register(operation, {
      ...request,
      flags: request.flags | messageFlag.ack,
    });
    outcome.promise.catch(() => undefined);
    await this.#transmit([outcome.pending]);
    await outcome.promise;
  }

  #requireOpen(operation: string): void {
    if (this.#socket.closed) throw closedError(operation);
  }

  async #enqueue(operation: string, request: Request): Promise<Message[]> {
    this.#requireOpen(operation);
    const { promise, pending } = this.#register(operation, request);
    if (!this.#working && !this.#pressure.contended) {
      this.#transmitNow(pending);
      return promise;
    }
    this.#queue.push(pending);
    if (!this.#working) {
      this.#working = true;
      queueMicrotask(() => void this.#work());
    }
    return promise;
  }

  #register(
    operation: string,
    request: Request,
  ): { promise: Promise<Message[]>; pending: Pending } {
    const { promise, resolve, reject } = Promise.withResolvers<Message[]>();
    const replies: Message[] = [];
    const settle = (error: unknown) => (error === undefined ? resolve(replies) : reject(error));
    const single = (request.flags & (messageFlag.ack | messageFlag.dump)) === 0;
    return {
      promise,
      pending: { operation, request, replies, single, interrupted: false, settle },
    };
  }

  /** Never rejects: failures go to the requests. */
  async #work(): Promise<void> {
    while (this.#queue.length > 0) {
      const isDump = isDumpRequest(this.#queue[0]);
      const other = this.#queue.findIndex((pending) => isDumpRequest(pending) !== isDump);
      const count = isDump ? 1 : Math.min(other < 0 ? this.#queue.length : other, MOST_REQUESTS);
      await this.#transmit(this.#queue.splice(0, count), this.#pressure.measureInPool());
    }
    this.#working = false;
  }

  /** One request on the calling thread: nothing else is in the queue, and RTNL is expected to be free. Never throws. */
  #transmitNow(pending: Pending): void {
    const sequence = this.#await(pending);
    const measured = this.#pressure.measure();
    try {
      this.#socket.send(emitMessage(pending.request, sequence));
      this.#drain();
    } catch (error) {
      this.#fail([sequence], error);
    }
    measured();
    this.#fail([sequence], undefined);
  }

  /** Sends requests in one datagram through the pool and settles them all. Never rejects. */
  async #transmit(batch: readonly Pending[], measured?: () => void): Promise<void> {
    using _lease = this.#socket.lease();
    const sequences = batch.map((pending) => this.#await(pending));
    try {
      const frames = batch.map((pending, at) => emitMessage(pending.request, sequences[at] ?? 0));
      await this.#socket.sendAsync(Buffer.concat(frames));
      measured?.();
      await this.#receive(batch, sequences);
    } catch (error) {
      this.#fail(sequences, error);
    }
    this.#fail(sequences, undefined);
  }

  #await(pending: Pending): number {
    this.#sequence = (this.#sequence % 0xffff_fffe) + 1;
    this.#pending.set(this.#sequence, pending);
    return this.#sequence;
  }

  /** The kernel has queued every answer by the time that `send` returns, except the later parts of a dump. */
  async #receive(batch: readonly Pending[], sequences: readonly number[]): Promise<void> {
    if (isDumpRequest(batch[0])) {
      // Set and cleared here, in this order, whatever the reader does: it may have nothing left to read and end at once.
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#dumping = promise;
      try {
        await this.#receiveDump(sequences[0] ?? 0);
      } finally {
        this.#dumping = undefined;
        resolve();
      }
      return;
    }
    // Two readers at once would take parts of a dump from each other.
    while (this.#dumping !== undefined) await this.#dumping;
    this.#drain();
  }

  /** Until everything is answered, or nothing more is there. */
  #drain(): void {
    while (this.#pending.size > 0) {
      const datagram = this.#socket.receive();
      if (datagram === undefined) return;
      this.#dispatch(datagram);
    }
  }

  async #receiveDump(sequence: number): Promise<void> {
    while (this.#pending.has(sequence)) {
      const datagram = await this.#socket.receiveAsync();
      if (datagram === undefined) return;
      this.#dispatch(datagram);
    }
  }

  #dispatch(datagram: Buffer): void {
    for (const message of parseMessages(datagram)) {
      const pending = this.#pending.get(message.sequence);
      if (pending !== undefined) this.#accept(message, pending);
    }
  }

  #accept(message: Message, pending: Pending): void {
    if ((message.flags & messageFlag.dumpInterrupted) !== 0) pending.interrupted = true;
    if (message.type !== messageType.error && message.type !== messageType.done) {
      pending.replies.push(message);
      if (!pending.single) return;
      this.#pending.delete(message.sequence);
      pending.settle(undefined);
      return;
    }
    this.#pending.delete(message.sequence);
    const refused = acknowledgementError(pending.operation, parseAcknowledgement(message));
    const interrupted = pending.interrupted
      ? new NetlinkError(pending.operation, constants.errno.EINTR)
      : undefined;
    pending.settle(refused ?? interrupted);
  }

  /** Rejects what of these requests has no answer: nothing may wait for ever. */
  #fail(sequences: readonly number[], cause: unknown): void {
    for (const sequence of sequences) {
      const pending = this.#pending.get(sequence);
      if (pending === undefined) continue;
      this.#pending.delete(sequence);
      const kernelText = cause === undefined ? "the kernel's answer was lost" : errorText(cause);
      // What failed before there was an answer, such as ENOBUFS, says whether to try again.
      const errno = cause instanceof SystemError ? cause.errno : constants.errno.EIO;
      pending.settle(new NetlinkError(pending.operation, errno, { kernelText, cause }));
    }
  }

  /** Idempotent. Requests that are not sent yet fail; those that are under way end first. */
  close(): void {
    this.#socket.close();
    for (const pending of this.#queue.splice(0)) pending.settle(closedError(pending.operation));
  }
}

function isDumpRequest(pending: Pending | undefined): boolean {
  return pending !== undefined && (pending.request.flags & messageFlag.dump) === messageFlag.dump;
}

function closedError(operation: string): NetlinkError {
  return new NetlinkError(operation, constants.errno.EBADF, {
    kernelText: "the netlink connection was closed before",
  });
}
