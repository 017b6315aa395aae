import type { Netns } from "../base/netns.ts";
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
import { NetlinkSocket } from "./socket.ts";

const NETLINK_NETFILTER = 12;
const EBADF = 9;

/** What one exchange sends: requests with their sequence numbers already in them. */
export interface Exchange {
  readonly first: number;
  readonly answers: readonly Message[];
}

/**
 * Questions and transactions over one nfnetlink socket. Calls may come at any time, they wait for each other: nfnetlink answers within the send, so
 * that what is there afterwards is the whole answer.
 */
export class Netfilter {
  readonly #socket: NetlinkSocket;
  #sequence = 1;
  #tail: Promise<unknown> = Promise.resolve();

  private constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  /** Opens a socket in the namespace, or in the process' own. Throws a SystemError. The caller closes it. */
  static open(netns?: Netns): Netfilter {
    return new Netfilter(NetlinkSocket.open(netns, [], NETLINK_NETFILTER));
  }

  /** Idempotent. Calls that still wait fail with EBADF. */
  close(): void {
    this.#socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Sends requests as one datagram, numbered from `first` on, and gives everything that came back for them. Rejects with a NetlinkError or SystemError. */
  exchange(operation: string, requests: readonly Request[]): Promise<Exchange> {
    return this.#next(async () => {
      const first = this.#sequence;
      this.#sequence += requests.length;
      const frames = requests.map((request, index) => emitMessage(request, first + index));
      // On libuv's pool: a commit waits while another program's is under way.
      using _lease = this.#open(operation).lease();
      await this.#socket.sendAsync(Buffer.concat(frames));
      return {
        first,
        answers: this.#drain().filter(
          ({ sequence }) => sequence >= first && sequence < this.#sequence,
        ),
      };
    });
  }

  /** What the kernel answers a question with, or a dump. Rejects with a NetlinkError. */
  ask(operation: string, question: Request): Promise<Message[]> {
    return this.#next(async () => this.#repeatInterrupted(operation, question));
  }

  #next<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    this.#tail = result.catch(() => undefined);
    return result;
  }

  /** A dump that a change interrupted may miss something or have it twice, so it is asked again. Nobody of this process can interrupt it. */
  #repeatInterrupted(operation: string, question: Request): Message[] {
    // The acknowledgement ends the answer to a question that is no dump.
    const isDump = (question.flags & messageFlag.dump) !== 0;
    const flags = question.flags | (isDump ? 0 : messageFlag.ack);
    for (;;) {
      const sequence = this.#sequence++;
      this.#open(operation).send(emitMessage({ ...question, flags }, sequence));
      const answers = this.#drain().filter((message) => message.sequence === sequence);
      const failed = answers
        .filter(isVerdict)
        .map(parseAcknowledgement)
        .find(({ errno }) => errno !== 0);
      const error = failed === undefined ? undefined : acknowledgementError(operation, failed);
      if (error !== undefined && error.code !== "EINTR") throw error;
      const isWhole = !answers.some(
        (message) => (message.flags & messageFlag.dumpInterrupted) !== 0,
      );
      if (error === undefined && isWhole) return answers.filter((message) => !isVerdict(message));
    }
  }

  #open(operation: string): NetlinkSocket {
    if (!this.#socket.closed) return this.#socket;
    throw new NetlinkError(operation, EBADF, { kernelText: "the socket was closed before" });
  }

  #drain(): Message[] {
    const messages: Message[] = [];
    for (;;) {
      const datagram = this.#socket.receive();
      if (datagram === undefined) return messages;
      messages.push(...parseMessages(datagram));
    }
  }
}

/** Whether a message is the kernel's verdict on a request: an error, an acknowledgement or a dump's end. */
export function isVerdict(message: Message): boolean {
  return message.type === messageType.error || message.type === messageType.done;
}
