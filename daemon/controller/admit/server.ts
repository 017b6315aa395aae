import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { DecodeError } from "../../../lib/base/decode.ts";
import { errorText } from "../../../lib/base/errors.ts";
import type { ListenAddress } from "../config.ts";
import { type AdmissionKind, admissionPaths } from "./admit.ts";
import { BodyBudget, BodyError } from "./body.ts";
import { type AdmissionRequest, decodeReview, encodeReview, type Verdict } from "./review.ts";

/** Milliseconds that a caller may take. */
export interface AdmissionPatience {
  /** For its TLS handshake. */
  readonly handshake: number;
  /** For sending one request. */
  readonly request: number;
}

const usualPatience: AdmissionPatience = { handshake: 5_000, request: 10_000 };
/** Milliseconds that a caller may be silent between two requests. */
const keepAliveTimeout = 90_000;
const mostConnections = 1_024;

/** A certificate with its key, PEM. */
export interface ServedPair {
  readonly cert: string;
  readonly key: string;
}

export interface AdmissionHandlers {
  readonly decide: (kind: AdmissionKind, request: AdmissionRequest) => Promise<Verdict>;
  /** Something went wrong that must not: the caller gets status 500, and the API server goes on without us. */
  readonly onFault: (error: unknown) => void;
}

/** An answer that is no review. */
interface Plain {
  readonly status: number;
  readonly text: string;
}

/**
 * Answers AdmissionReviews over TLS, with bounds on size, time, number and memory. Whatever comes is answered, or its connection
 * closed. Until there is a certificate no handshake succeeds.
 */
export class AdmissionServer implements AsyncDisposable {
  readonly #handlers: AdmissionHandlers;
  readonly #budget = new BodyBudget();
  readonly #server: Server;

  constructor(handlers: AdmissionHandlers, patience = usualPatience) {
    this.#handlers = handlers;
    const options = {
      handshakeTimeout: patience.handshake,
      requestTimeout: patience.request,
      headersTimeout: patience.request,
      keepAliveTimeout,
      connectionsCheckingInterval: Math.min(1_000, patience.request),
    };
    this.#server = createServer(options, (message, response) => {
      this.#serve(message, response).catch((error: unknown) => this.#refuse(response, error));
    });
    this.#server.maxConnections = mostConnections;
  }

  /** The port that it listens on. */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Bytes that reviews under way may still take. */
  get memoryLeft(): number {
    return this.#budget.left;
  }

  /** Rejects with the reason when the address can't be had. */
  async listen({ host, port }: ListenAddress): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", (cause) => {
        reject(new Error(`listen on ${host}:${port}: ${cause.message}`, { cause }));
      });
      this.#server.listen({ host, port, backlog: 1_024 }, resolve);
    });
    this.#server.on("error", this.#handlers.onFault);
  }

  /** New connections get this certificate; those that are open go on with theirs. */
  use({ cert, key }: ServedPair): void {
    this.#server.setSecureContext({ cert, key, minVersion: "TLSv1.2" });
  }

  /** Answers what is under way, then closes; after a second it closes in any case. */
  async [Symbol.asyncDispose](): Promise<void> {
    const late = setTimeout(() => this.#server.closeAllConnections(), 1_000);
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeIdleConnections();
    });
    clearTimeout(late);
  }

  async #serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (message.url ?? "").split("?")[0] ?? "";
    if (path === "/healthz") return sendPlain(response, { status: 200, text: "ok" });
    const kind = Object.hasOwn(admissionPaths, path)
      ? admissionPaths[path as keyof typeof admissionPaths]
      : undefined;
    if (kind === undefined) return sendPlain(response, { status: 404, text: "not found" });
    if (message.method !== "POST") {
      return sendPlain(response, { status: 405, text: "send an AdmissionReview by POST" });
    }
    await this.#budget.read(message, async (body) => {
      const request = decodeReview(parse(body));
      const verdict = await this.#handlers.decide(kind, request);
      send(response, 200, encodeReview(request, verdict));
    });
  }

  #refuse(response: ServerResponse, error: unknown): void {
    if (response.destroyed || response.headersSent) {
      response.destroy();
      return;
    }
    const plain = plainOf(error);
    if (plain.status === 500) this.#handlers.onFault(error);
    // What the caller still sends is not read.
    response.setHeader("connection", "close");
    sendPlain(response, plain);
  }
}

function plainOf(error: unknown): Plain {
  if (error instanceof BodyError) return { status: error.status, text: error.message };
  if (error instanceof DecodeError) return { status: 400, text: error.message.slice(0, 2_000) };
  return { status: 500, text: `podnet failed: ${errorText(error).slice(0, 500)}` };
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new DecodeError("AdmissionReview", [{ path: "", message: "not JSON" }]);
  }
}

function sendPlain(response: ServerResponse, { status, text }: Plain): void {
  response.setHeader("content-type", "text/plain; charset=utf-8");
  send(response, status, `${text}\n`);
}

function send(response: ServerResponse, status: number, body: string): void {
  if (response.destroyed) return;
  if (!response.hasHeader("content-type")) response.setHeader("content-type", "application/json");
  response.writeHead(status, { "content-length": Buffer.byteLength(body) });
  response.end(body);
}
