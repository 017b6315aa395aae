/**
 * The bytes between the stub and podnetd: one HTTP/1.1 request and its answer on a unix socket, closed afterwards.
 * Only what podnetd speaks: an answer with Content-Length. Pure: bytes in, values out.
 */

/** The answer of the daemon. */
export interface Answer {
  readonly status: number;
  readonly body: Uint8Array;
}

/** The answer is not what podnetd sends. */
export class AnswerError extends Error {
  override readonly name = "AnswerError";
}

/** The longest body that is accepted, in bytes. */
export const longestBody = 16 * 1024 * 1024;
const longestHead = 16 * 1024;

/** The first line of the request's body: what stdin does not say. The stdin bytes follow it as they came. */
export function requestLine(env: Readonly<Record<string, string>>): string {
  return `${JSON.stringify({ protocol: 1, env })}\n`;
}

/** The head of the request, for a body of `length` bytes. */
export function requestHead(length: number): string {
  const fields = [
    "POST /cni HTTP/1.1",
    "Host: podnetd",
    "Content-Type: application/octet-stream",
    `Content-Length: ${length}`,
    "Connection: close",
  ];
  return `${fields.join("\r\n")}\r\n\r\n`;
}

/** Joins byte arrays into one. */
export function concatenate(parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}

/** Puts an answer together from the pieces in which it arrives. Throws AnswerError as soon as it is wrong. */
export class AnswerReader {
  #head: Head | undefined;
  #parts: Uint8Array[] = [];
  #received = 0;
  #scanned = 0;

  /** Takes the next piece; returns the answer once it is complete. */
  push(piece: Uint8Array): Answer | undefined {
    this.#parts.push(piece);
    this.#received += piece.length;
    const head = this.#head ?? this.#readHead();
    if (head === undefined || this.#received < head.length) return undefined;
    if (this.#received > head.length) {
      throw new AnswerError(`body longer than its Content-Length ${head.length}`);
    }
    return { status: head.status, body: concatenate(this.#parts) };
  }

  #readHead(): Head | undefined {
    const bytes = concatenate(this.#parts);
    const end = findBlankLine(bytes, this.#scanned);
    if (end < 0) {
      if (!startsLikeHttp(bytes)) throw new AnswerError(`not HTTP: ${quote(bytes)}`);
      if (bytes.length >= longestHead)
        throw new AnswerError(`head longer than ${longestHead} bytes`);
      this.#parts = [bytes];
      this.#scanned = Math.max(0, bytes.length - 3);
      return undefined;
    }
    this.#head = parseHead(asciiText(bytes.subarray(0, end)));
    this.#parts = [bytes.subarray(end + 4)];
    this.#received = bytes.length - end - 4;
    return this.#head;
  }
}

interface Head {
  readonly status: number;
  /** Of the body, in bytes. */
  readonly length: number;
}

function parseHead(text: string): Head {
  const [statusLine = "", ...fields] = text.split("\r\n");
  const status = /^HTTP\/1\.[01] ([2-5][0-9][0-9])( |$)/.exec(statusLine)?.[1];
  if (status === undefined) throw new AnswerError(`bad status line ${shorten(statusLine)}`);
  let length: string | undefined;
  for (const field of fields) {
    const colon = field.indexOf(":");
    if (colon < 1) throw new AnswerError(`bad header line ${shorten(field)}`);
    const name = field.slice(0, colon).toLowerCase();
    const value = field.slice(colon + 1).trim();
    if (name === "transfer-encoding") throw new AnswerError("Transfer-Encoding is not supported");
    if (name === "content-length") {
      if (length !== undefined && length !== value) throw new AnswerError("two Content-Lengths");
      length = value;
    }
  }
  return { status: Number(status), length: parseLength(length) };
}

function parseLength(value: string | undefined): number {
  if (value === undefined) throw new AnswerError("no Content-Length");
  if (!/^[0-9]{1,12}$/.test(value)) throw new AnswerError(`Content-Length ${shorten(value)}`);
  const length = Number(value);
  if (length > longestBody)
    throw new AnswerError(`body of ${length} bytes, the limit is ${longestBody}`);
  return length;
}

/** The offset of the blank line that ends a head, looked for from `from` on, or -1. */
function findBlankLine(bytes: Uint8Array, from: number): number {
  const limit = Math.min(bytes.length, longestHead) - 3;
  for (let at = from; at < limit; at++) {
    if (bytes[at] === 13 && bytes[at + 1] === 10 && bytes[at + 2] === 13 && bytes[at + 3] === 10) {
      return at;
    }
  }
  return -1;
}

/** Tells garbage from a slow head at once, so that nobody waits for the rest of it. */
function startsLikeHttp(bytes: Uint8Array): boolean {
  const start = "HTTP/1.";
  return start.startsWith(asciiText(bytes.subarray(0, start.length)));
}

function asciiText(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function quote(bytes: Uint8Array): string {
  return shorten(asciiText(bytes.subarray(0, 100)));
}

function shorten(text: string): string {
  return JSON.stringify(text.length <= 60 ? text : `${text.slice(0, 60)}...`);
}
