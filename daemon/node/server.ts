import { chmodSync, lstatSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { dirname } from "node:path";
import { ensurePrivateDir, removeFile } from "../../lib/base/files.ts";
import { EndedError } from "./failure.ts";

/** One answer: `contentType` is JSON unless said otherwise. */
export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly contentType?: string;
}

export interface Request {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: Buffer;
  /** Aborted when the caller has gone before it was answered. */
  readonly gone: AbortSignal;
}

/** Answers one request; must not reject (a rejection is answered with status 500 and told to `onFault`). */
export type Handler = (request: Request) => Promise<Answer>;

/** Bytes of one request's body: a configuration of 1 MB with room to spare. */
const largestBody = 8 * 1024 * 1024;
/** Milliseconds that a caller may take to send its request. */
const requestTimeout = 30_000;
const mostConnections = 2048;

export class RequestTooLargeError extends Error {
  override readonly name = "RequestTooLargeError";
}

async function readBody(message: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of message as AsyncIterable<Buffer>) {
    length += part.length;
    if (length > largestBody) {
      throw new RequestTooLargeError(`read request: more than ${largestBody} bytes`);
    }
    parts.push(part);
  }
  return Buffer.concat(parts, length);
}

function send(response: ServerResponse, answer: Answer): void {
  const body = Buffer.from(answer.body);
  response.writeHead(answer.status, {
    "content-type": answer.contentType ?? "application/json",
    "content-length": body.length,
  });
  response.end(body);
}

async function serve(
  handler: Handler,
  message: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) gone.abort(new EndedError("the caller has gone"));
  });
  const url = new URL(message.url ?? "/", "http://podnetd");
  const body = await readBody(message);
  const answer = await handler({
    method: message.method ?? "GET",
    path: url.pathname,
    query: url.searchParams,
    body,
    gone: gone.signal,
  });
  if (!response.destroyed) send(response, answer);
}

function refuse(response: ServerResponse, error: unknown): void {
  if (response.destroyed || response.headersSent) {
    response.destroy();
    return;
  }
  const status = error instanceof RequestTooLargeError ? 413 : 400;
  const msg = error instanceof Error ? error.message : String(error);
  response.shouldKeepAlive = false;
  send(response, { status, body: JSON.stringify({ cniVersion: "1.1.0", code: 6, msg }) });
}

/** An HTTP server that answers with `handler`, with bounds on size, time and number of callers. */
export function createHttpServer(handler: Handler, onFault: (error: unknown) => void): Server {
  const server = createServer(
    { requestTimeout, headersTimeout: requestTimeout },
    (message, response) => {
      serve(handler, message, response).catch((error: unknown) => {
        if (!(error instanceof RequestTooLargeError)) onFault(error);
        refuse(response, error);
      });
    },
  );
  server.maxConnections = mostConnections;
  return server;
}

/** Whether somebody answers on the socket: then another daemon owns it. */
async function isServed(path: string): Promise<boolean> {
  return await new Promise((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
}

/**
 * Listens on a unix socket that only root may open (mode 0600). A socket left behind by a dead daemon is replaced;
 * one that somebody serves, or a file that is no socket, is an error.
 */
export async function listenOnSocket(server: Server, path: string): Promise<void> {
  ensurePrivateDir(dirname(path));
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found !== undefined) {
    if (!found.isSocket()) throw new Error(`listen on "${path}": it exists and is no socket`);
    if (await isServed(path)) throw new Error(`listen on "${path}": another podnetd serves it`);
    removeFile(path);
  }
  const mask = process.umask(0o177);
  try {
    await listen(server, { path });
  } finally {
    process.umask(mask);
  }
  chmodSync(path, 0o600);
}

/** Resolves when the server listens; rejects with the reason why it can't. */
export async function listen(
  server: Server,
  options: { readonly path: string } | { readonly host: string; readonly port: number },
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ backlog: 1024, ...options }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** Stops accepting, lets answers under way finish, and resolves when all are given or `signal` ends. */
export async function stopServer(server: Server, signal: AbortSignal): Promise<void> {
  const cut = (): void => server.closeAllConnections();
  signal.addEventListener("abort", cut, { once: true });
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
  signal.removeEventListener("abort", cut);
}
