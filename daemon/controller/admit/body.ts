import type { IncomingMessage } from "node:http";

/** Bytes of one review: the API server takes objects of 3 MiB, and an update has two of them. */
export const largestBody = 7 * 1024 * 1024;
/** Bytes of all reviews that are read or being answered: what they become in memory is some ten times as much. */
const mostBytes = 16 * 1024 * 1024;

/** The request is too large, or came too soon after others: its answer's HTTP status. */
export class BodyError extends Error {
  override readonly name = "BodyError";
  readonly status: 413 | 503;

  constructor(status: 413 | 503, message: string) {
    super(message);
    this.status = status;
  }
}

/** Memory that reviews share. Each takes what it reads and gives it back when it has been answered. */
export class BodyBudget {
  #left = mostBytes;

  get left(): number {
    return this.#left;
  }

  /** Reads a body and gives it to `use`. Rejects with a BodyError when it is too large, or too much is under way. */
  async read<T>(message: IncomingMessage, use: (body: Buffer) => Promise<T>): Promise<T> {
    let taken = 0;
    try {
      const announced = Number(message.headers["content-length"] ?? 0);
      if (announced > largestBody) throw tooLarge();
      const parts: Buffer[] = [];
      // The connection stays, so that a refusal can be told.
      for await (const part of message.iterator({ destroyOnReturn: false })) {
        const { length } = part as Buffer;
        taken += length;
        this.#left -= length;
        if (taken > largestBody) throw tooLarge();
        if (this.#left < 0) throw new BodyError(503, "too many reviews at once: ask again");
        parts.push(part as Buffer);
      }
      return await use(Buffer.concat(parts, taken));
    } finally {
      this.#left += taken;
    }
  }
}

function tooLarge(): BodyError {
  return new BodyError(413, `review has more than ${largestBody} bytes`);
}
