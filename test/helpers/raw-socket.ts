import { rmSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { buffer } from "node:stream/consumers";
import type { Message } from "./generations.ts";

/** Sends bytes to a unix socket and gives what comes until the other end closes. */
export async function exchangeRaw(path: string, text: string): Promise<string> {
  const socket = connect(path);
  socket.write(text);
  return (await buffer(socket)).toString();
}

/** Head and body of an HTTP message. */
export function splitMessage(text: string): Message {
  const end = text.indexOf("\r\n\r\n");
  return { head: text.slice(0, end), body: text.slice(end + 4) };
}

/** An HTTP message of a head (whose Content-Length is put right) and a body. */
export function joinMessage({ head, body }: Message): string {
  const length = Buffer.byteLength(body);
  return `${head.replace(/(content-length: ?)[^\r\n]*/i, `$1${length}`)}\r\n\r\n${body}`;
}

/** A listener in the daemon's place: keeps what the stub sends, byte for byte, and answers as it is told. */
export class RawDaemon implements AsyncDisposable {
  readonly requests: string[] = [];
  answer = "";
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async listen(path: string): Promise<RawDaemon> {
    rmSync(path, { force: true });
    const server = createServer({ allowHalfOpen: true });
    const daemon = new RawDaemon(server);
    server.on("connection", (socket) => {
      let text = "";
      socket.on("error", () => undefined);
      socket.setEncoding("utf8").on("data", (piece: string) => {
        text += piece;
        if (!isComplete(text)) return;
        daemon.requests.push(text);
        socket.end(daemon.answer);
      });
    });
    await new Promise<void>((done) => server.listen(path, done));
    return daemon;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise((done) => this.#server.close(done));
  }
}

function isComplete(text: string): boolean {
  const { head, body } = splitMessage(text);
  const length = /content-length: ?(\d+)/i.exec(head)?.[1];
  return length !== undefined && Buffer.byteLength(body) >= Number(length);
}
