import type { Transport } from "../../lib/netlink/connection.ts";
import { emitMessage, type Message, parseMessages } from "../../lib/netlink/message.ts";

/** Plays the kernel behind a netlink connection: a function from a request to the datagrams that answer it. */
export class FakeKernel implements Transport {
  closed = false;
  /** Requests of each datagram that was sent, and how. */
  readonly sent: { readonly how: "here" | "pool"; readonly requests: Message[] }[] = [];
  readonly #answer: (request: Message) => Buffer[];
  readonly #queue: Buffer[] = [];
  #leases = 0;

  constructor(answer: (request: Message) => Buffer[]) {
    this.#answer = answer;
  }

  get leases(): number {
    return this.#leases;
  }

  send(bytes: Uint8Array): void {
    this.#take("here", bytes);
  }

  async sendAsync(bytes: Uint8Array): Promise<void> {
    await new Promise(setImmediate);
    this.#take("pool", bytes);
  }

  #take(how: "here" | "pool", bytes: Uint8Array): void {
    const requests = parseMessages(Buffer.from(bytes));
    this.sent.push({ how, requests });
    for (const request of requests) this.#queue.push(...this.#answer(request));
  }

  receive(): Buffer | undefined {
    return this.#queue.shift();
  }

  async receiveAsync(): Promise<Buffer | undefined> {
    await new Promise(setImmediate);
    return this.#queue.shift();
  }

  lease(): Disposable {
    this.#leases += 1;
    return {
      [Symbol.dispose]: () => {
        this.#leases -= 1;
      },
    };
  }

  close(): void {
    this.closed = true;
  }
}

/** An answer's message; its flags are exactly these. */
export function answer(
  type: number,
  sequence: number,
  parts: { readonly flags?: number; readonly body?: Uint8Array } = {},
): Buffer {
  const bytes = emitMessage({ type, flags: 0, body: parts.body ?? Buffer.alloc(0) }, sequence);
  bytes.writeUInt16LE(parts.flags ?? 0, 6);
  return bytes;
}

/** NLMSG_ERROR for a request: errno 0 is success. */
export function acknowledge(request: Message, errno = 0): Buffer {
  const body = Buffer.alloc(20);
  body.writeInt32LE(0 - errno, 0);
  return answer(2, request.sequence, { flags: 0x100, body });
}
