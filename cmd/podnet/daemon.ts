import { CniError } from "../../lib/cni/errors.ts";
import { type Connection, type Host, hostErrorCode } from "./host.ts";
import { type Answer, AnswerError, AnswerReader } from "./wire.ts";

/** One question to the daemon and how long it may take. Times in milliseconds, see Host. */
export interface Question {
  readonly socket: string;
  readonly request: Uint8Array;
  /** How long to wait for a daemon that is not there, from the first failure on; 0: not at all. */
  readonly wait: number;
  /** The end of the whole call. */
  readonly until: number;
  /** The CNI code for a daemon that does not answer. */
  readonly code: number;
}

/** Milliseconds. A pause is an eighth of the time since the first failure, within these: a daemon that is back is asked soon, and a long wait costs little. */
const shortestPause = 10;
const longestPause = 250;

/** The connection ended before the answer was complete: the daemon went away, and the question can be asked again. */
class LostError extends Error {
  override readonly name = "LostError";
  readonly code = "ECONNRESET";
}

/** Failures of a daemon that is restarting, or (EAGAIN) has more callers queued than its socket takes. */
const transientReasons: { readonly [code: string]: string | undefined } = {
  ENOENT: "no such socket",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection lost before the answer",
  EPIPE: "connection lost before the answer",
  EAGAIN: "too many callers",
};

/**
 * Asks the daemon and returns its answer, whatever its status. While the daemon is away it is asked again, with growing
 * pauses, until the wait is over; podnetd takes a repeated request for the same attachment as the same one, so that this
 * is safe even after a loss in mid-request. Throws a CniError with the question's code.
 */
export async function askDaemon(host: Host, question: Question): Promise<Answer> {
  const patience = new Patience(host, question);
  for (;;) {
    try {
      return await attempt(host, question);
    } catch (error) {
      await patience.pause(error);
    }
  }
}

/** Decides after each failure: ask again later, or give up. */
class Patience {
  readonly #host: Host;
  readonly #question: Question;
  readonly #started: number;
  #waitEnds: number | undefined;
  #failed: number | undefined;

  constructor(host: Host, question: Question) {
    this.#host = host;
    this.#question = question;
    this.#started = host.now();
  }

  /** Returns when it is time to ask again; throws when it is time to give up, or when asking again can't help. */
  async pause(error: unknown): Promise<void> {
    const code = hostErrorCode(error) ?? "";
    const reason = transientReasons[code];
    const now = this.#host.now();
    if (reason === undefined) throw describe(error, this.#question, now - this.#started);
    this.#failed ??= now;
    const end = await this.#end(code, reason, now);
    if (now >= end) throw unreachable(this.#question, reason, now - this.#started);
    const pause = Math.max(shortestPause, Math.min((now - this.#failed) / 8, longestPause));
    await this.#host.sleep(Math.min(now + pause, end));
  }

  /** The wait begins with the first failure and never anew: a daemon in a crash loop must not hold the call for ever. */
  async #end(code: string, reason: string, now: number): Promise<number> {
    if (code === "EAGAIN") return this.#question.until;
    if (this.#waitEnds === undefined) {
      this.#waitEnds = Math.min(now + this.#question.wait, this.#question.until);
      if (this.#question.wait > 0) await announce(this.#host, this.#question, reason);
    }
    return this.#waitEnds;
  }
}

async function attempt(host: Host, question: Question): Promise<Answer> {
  const connection = await host.connect(question.socket, question.until);
  try {
    await send(connection, question);
    return await receive(connection, question.until);
  } finally {
    connection.close();
  }
}

/** A daemon may refuse (too large, shutting down) and close before it has read everything: its answer counts then. */
async function send(connection: Connection, question: Question): Promise<void> {
  try {
    await connection.send(question.request, question.until);
  } catch (error) {
    const code = hostErrorCode(error);
    if (code !== "EPIPE" && code !== "ECONNRESET") throw error;
  }
}

async function receive(connection: Connection, until: number): Promise<Answer> {
  const reader = new AnswerReader();
  for (;;) {
    const piece = await connection.receive(until);
    if (piece.length === 0) throw new LostError("closed");
    const answer = reader.push(piece);
    if (answer !== undefined) return answer;
  }
}

async function announce(host: Host, question: Question, reason: string): Promise<void> {
  const line = `podnet: podnetd at ${JSON.stringify(question.socket)}: ${reason}, waiting up to ${seconds(question.wait)}\n`;
  try {
    await host.write(2, host.encode(line), host.now() + 100);
  } catch {
    // Nobody reads stderr: the call itself goes on.
  }
}

function unreachable(question: Question, reason: string, waited: number): CniError {
  const after = question.wait > 0 ? `${reason}, waited ${seconds(waited)}` : reason;
  return new CniError(
    question.code,
    `ask podnetd at ${JSON.stringify(question.socket)}: ${after}: check that podnetd runs on this node, then try again`,
  );
}

function describe(error: unknown, question: Question, waited: number): unknown {
  const action = `ask podnetd at ${JSON.stringify(question.socket)}`;
  if (error instanceof AnswerError) {
    return new CniError(
      question.code,
      `${action}: bad answer: ${error.message}: check that it is podnetd that listens there`,
      { cause: error },
    );
  }
  const code = hostErrorCode(error);
  if (code === undefined) return error;
  const reason =
    code === "ETIMEDOUT"
      ? `no answer within ${seconds(waited)}: check podnetd's log, then try again`
      : `${code}: check daemonSocket in the network configuration and the socket's permissions`;
  return new CniError(question.code, `${action}: ${reason}`, { cause: error });
}

function seconds(milliseconds: number): string {
  return `${Math.round(milliseconds / 100) / 10} s`;
}
