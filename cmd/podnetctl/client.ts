import { Agent, request } from "undici";

/** podnetd answered with a fault: its CNI error code and the two texts of it. */
export class DaemonError extends Error {
  override readonly name = "DaemonError";
  readonly code: number;
  readonly details: string | undefined;

  constructor(fault: { readonly code: number; readonly msg: string; readonly details?: string }) {
    super(fault.msg);
    this.code = fault.code;
    this.details = fault.details;
  }
}

interface Call {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body?: string;
}

/** Talks to podnetd over its socket. Every call ends: with the answer, a DaemonError, or an Error that says what to do. */
export class Client {
  readonly #agent: Agent;
  readonly #socket: string;

  /** `timeout` in milliseconds, for the whole of a call. */
  constructor(socket: string, timeout: number) {
    this.#socket = socket;
    this.#agent = new Agent({
      connect: { socketPath: socket },
      headersTimeout: timeout,
      bodyTimeout: timeout,
    });
  }

  async send(call: Call): Promise<string> {
    const { statusCode, body } = await this.#exchange(call);
    if (statusCode !== 200) throw fault(statusCode, body);
    if (body === "" || isJson(body)) return body;
    throw new Error(`reach podnetd at "${this.#socket}": what answers there is not podnetd`);
  }

  async close(): Promise<void> {
    await this.#agent.close();
  }

  async #exchange(call: Call): Promise<{ statusCode: number; body: string }> {
    try {
      const answer = await request(`http://podnetd${call.path}`, {
        method: call.method,
        dispatcher: this.#agent,
        ...(call.body === undefined ? {} : { body: call.body }),
      });
      return { statusCode: answer.statusCode, body: await answer.body.text() };
    } catch (error) {
      throw new Error(`reach podnetd at "${this.#socket}": ${reason(error)}`, { cause: error });
    }
  }
}

function reason(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  switch (code) {
    case "ENOENT":
      return "no such socket; is podnetd running, and with this --socket?";
    case "ECONNREFUSED":
      return "nobody listens; podnetd is not running";
    case "UND_ERR_HEADERS_TIMEOUT":
    case "UND_ERR_BODY_TIMEOUT":
      return "no answer in time; wait longer with --timeout, or look at podnetd's log";
    case "EACCES":
      return "permission denied; run podnetctl as root";
    default:
      return error instanceof Error ? error.message : String(error);
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function fault(status: number, body: string): DaemonError {
  try {
    const { code, msg, details } = JSON.parse(body) as Record<string, unknown>;
    if (typeof code === "number" && typeof msg === "string") {
      return new DaemonError({ code, msg, ...(typeof details === "string" ? { details } : {}) });
    }
  } catch {
    // Not podnetd's form: told as it is.
  }
  return new DaemonError({ code: 999, msg: `podnetd answered ${status}: ${body.slice(0, 200)}` });
}
