import { Agent, type Dispatcher, request } from "undici";
import { errorCode, errorText } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import type { Connection, Credentials } from "./credentials.ts";
import { KubeError } from "./error.ts";
import { splitLines } from "./lines.ts";

/** Milliseconds that one request may take. */
const requestTimeout = 15_000;
/**
 * Milliseconds that a watch may be silent. Servers send a bookmark a minute, but not for a kind that nothing happened to since they
 * started: then it is the connection that is renewed, in case its other end is gone without a word.
 */
const watchSilence = 150_000;
/** What undici says of a body that was silent for too long. */
const silent = "UND_ERR_BODY_TIMEOUT";
/** Bytes of one answer: pages of lists are far smaller. */
const longestAnswer = 128 * 1024 * 1024;

export interface KubeRequest {
  readonly method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly accept?: string;
  readonly body?: unknown;
  /** Of the body; default application/json. */
  readonly contentType?: string;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds, in place of 15 s; of a watch: that it may be silent, in place of 150 s. */
  readonly timeout?: number;
}

/** One event of a watch, not decoded. */
export interface WatchEvent {
  readonly type: string;
  readonly object: unknown;
}

/** Requests to one API server. Connections are kept and opened anew when credentials change. Rejects with KubeErrors only. */
export class KubeClient {
  readonly #credentials: Credentials;
  #agent: { readonly fingerprint: string; readonly agent: Agent } | undefined;
  #clock: { readonly time: number; readonly at: number } | undefined;

  readonly #userAgent: string;

  /** `userAgent`: how this program names itself to the server. */
  constructor(credentials: Credentials, userAgent = "podnetd") {
    this.#credentials = credentials;
    this.#userAgent = userAgent;
  }

  /** Where and as whom the next request would be made. Rejects with a KubeError when no credentials can be read. */
  async connection(): Promise<Connection> {
    return await this.#credentials.current();
  }

  /** The answer's JSON. */
  async request(options: KubeRequest): Promise<unknown> {
    const { signal, timeout = requestTimeout } = options;
    const limit = AbortSignal.timeout(timeout);
    const both = signal === undefined ? limit : AbortSignal.any([signal, limit]);
    try {
      const { body } = await this.#send(options, both, timeout);
      return JSON.parse(await readAll(body)) as unknown;
    } catch (error) {
      throw asKubeError(options, error);
    }
  }

  /** The events of a watch until the server ends it, or was silent for long. */
  async *watch(options: KubeRequest): AsyncGenerator<WatchEvent> {
    try {
      const { body } = await this.#send(options, options.signal, options.timeout ?? watchSilence);
      for await (const line of splitLines(body)) {
        const event: unknown = JSON.parse(line);
        if (isJsonObject(event) && typeof event["type"] === "string") {
          yield { type: event["type"], object: event["object"] };
        }
      }
    } catch (error) {
      if (errorCode(error) === silent) return;
      throw asKubeError(options, error);
    }
  }

  /**
   * Milliseconds since the epoch by the server's clock, to a second or so, as its last answer told it; this machine's before there was one. For
   * what the server judges by its own clock.
   */
  serverNow(): number {
    if (this.#clock === undefined) return Date.now();
    return this.#clock.time + performance.now() - this.#clock.at;
  }

  async close(): Promise<void> {
    await this.#agent?.agent.destroy();
    this.#agent = undefined;
  }

  async #send(
    options: KubeRequest,
    signal: AbortSignal | undefined,
    silence: number,
  ): Promise<Dispatcher.ResponseData> {
    const connection = await this.#credentials.current();
    const { method = "GET", path, query = {}, accept = "application/json", body } = options;
    const search = new URLSearchParams(query).toString();
    const contentType = options.contentType ?? "application/json";
    const answer = await request(
      `${connection.server}${path}${search === "" ? "" : `?${search}`}`,
      {
        method,
        dispatcher: this.#agentFor(connection),
        signal: signal ?? null,
        headersTimeout: requestTimeout,
        bodyTimeout: silence,
        headers: {
          accept,
          "user-agent": this.#userAgent,
          ...connection.headers,
          ...(body === undefined ? {} : { "content-type": contentType }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      },
    );
    const time = Date.parse(String(answer.headers["date"] ?? ""));
    if (Number.isFinite(time)) this.#clock = { time, at: performance.now() };
    if (answer.statusCode >= 200 && answer.statusCode < 300) return answer;
    throw await refusal(answer);
  }

  #agentFor(connection: Connection): Agent {
    const { fingerprint, tls } = connection;
    if (this.#agent?.fingerprint === fingerprint) return this.#agent.agent;
    const old = this.#agent?.agent;
    // Not HTTP/2: it would put all watches and questions on one connection, and all would hang when that dies unnoticed.
    const connect = { ...tls, timeout: 10_000 };
    const agent = new Agent({ connect, keepAliveTimeout: 30_000, allowH2: false });
    this.#agent = { fingerprint, agent };
    // Requests under way on the old connections finish; watches end when the server ends them.
    old?.close().catch(() => undefined);
    return agent;
  }
}

async function readAll(body: Dispatcher.ResponseData["body"]): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > longestAnswer) throw new Error(`answer has more than ${longestAnswer} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** An answer that is no success: a metav1.Status in most cases. */
async function refusal(answer: Dispatcher.ResponseData): Promise<KubeError> {
  const text = await readAll(answer.body);
  const status = parseStatus(text);
  const seconds = Number(answer.headers["retry-after"]);
  return new KubeError(status.message ?? text.slice(0, 200).replaceAll(/\s+/g, " "), {
    status: answer.statusCode,
    reason: status.reason,
    retryAfter: Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds, 60) * 1000 : undefined,
  });
}

function parseStatus(text: string): { message?: string; reason?: string } {
  try {
    return statusOf(JSON.parse(text));
  } catch {
    return {};
  }
}

/** Message and reason of a metav1.Status. */
export function statusOf(value: unknown): { message?: string; reason?: string; code?: number } {
  if (!isJsonObject(value)) return {};
  const { message, reason, code } = value;
  return {
    ...(typeof message === "string" ? { message: message.slice(0, 1000) } : {}),
    ...(typeof reason === "string" ? { reason } : {}),
    ...(typeof code === "number" ? { code } : {}),
  };
}

function asKubeError({ method = "GET", path }: KubeRequest, error: unknown): KubeError {
  const what = `${method} ${path}`;
  if (error instanceof KubeError) {
    const { status, reason, retryAfter, cause } = error;
    const number = status === undefined ? "" : ` (${status})`;
    const options = { status, reason, retryAfter, cause };
    return new KubeError(`${what}: ${error.message}${number}`, options);
  }
  const code = errorCode(error);
  const text = errorText(error) || code || "no answer";
  return new KubeError(`${what}: ${text}`, { cause: error });
}
