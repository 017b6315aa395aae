import { connect as connectSocket, type Socket } from "node:net";
import type { Connection, Host } from "./host.ts";

/** The stub's host on Node: for the pkg package, and for tests. */
export const nodeHost: Host = {
  args: process.argv.slice(2),
  env: (name) => process.env[name],
  now,
  sleep,
  readStdin,
  connect,
  write: (target, data, until) =>
    writeAll(target === 1 ? process.stdout : process.stderr, data, until),
  encode: (text) => new TextEncoder().encode(text),
  decode: (data) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(data),
};

function now(): number {
  return performance.now();
}

function sleep(until: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, until - now())));
}

/** An error of this process' own that looks like the kernel's. */
function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** The outcome of `work`, or `ETIMEDOUT`. */
async function before<T>(until: number, work: Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(failure("ETIMEDOUT")), Math.max(0, until - now()));
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function readStdin(limit: number, until: number): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  let length = 0;
  const collect = async (): Promise<Uint8Array> => {
    for await (const part of process.stdin as AsyncIterable<Buffer>) {
      parts.push(part);
      length += part.length;
      if (length > limit) throw failure("EMSGSIZE");
    }
    return Buffer.concat(parts);
  };
  return await before(until, collect());
}

async function writeAll(
  stream: NodeJS.WritableStream,
  data: Uint8Array,
  until: number,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  stream.once("error", reject);
  stream.write(data, (error) => (error ? reject(error) : resolve()));
  await before(until, promise);
  stream.removeListener("error", reject);
}

async function connect(path: string, until: number): Promise<Connection> {
  const socket = connectSocket(path);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.once("connect", resolve);
  socket.once("error", reject);
  try {
    await before(until, promise);
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return new NodeConnection(socket);
}

class NodeConnection implements Connection {
  readonly #socket: Socket;
  readonly #pieces: Uint8Array[] = [];
  #failed: Error | undefined;
  #ended = false;
  #changed = Promise.withResolvers<void>();

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (piece) => {
      this.#pieces.push(Buffer.from(piece));
      // One piece at a time: an endless answer must not pile up here.
      socket.pause();
      this.#changed.resolve();
    });
    socket.on("error", (error) => {
      this.#failed = error;
      this.#changed.resolve();
    });
    socket.on("close", () => {
      this.#ended = true;
      this.#changed.resolve();
    });
  }

  async send(data: Uint8Array, until: number): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#socket.write(data, (error) => {
      // Node's word for a write that was still waiting when the other side had gone.
      if (error && "code" in error && error.code === "ECANCELED") reject(failure("EPIPE"));
      else if (error) reject(error);
      else resolve();
    });
    await before(until, promise);
  }

  async receive(until: number): Promise<Uint8Array> {
    for (;;) {
      const piece = this.#pieces.shift();
      if (piece !== undefined) return piece;
      if (this.#failed !== undefined) throw this.#failed;
      if (this.#ended) return new Uint8Array(0);
      this.#changed = Promise.withResolvers();
      this.#socket.resume();
      await before(until, this.#changed.promise);
    }
  }

  close(): void {
    this.#socket.destroy();
  }
}
