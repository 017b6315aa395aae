import type { Connection, Host } from "../../cmd/podnet/host.ts";

/** What a fake connection does: pieces that arrive, then an error code or the end. */
export interface FakeConnection {
  readonly pieces?: readonly string[];
  /** Thrown after the pieces; without it the connection ends. */
  readonly failure?: string;
}

/** An error as a Host throws it. */
export function hostFailure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** The stub's Host without a kernel: a clock that only sleeping moves, and connections from a list. */
export class FakeHost implements Host {
  args: string[] = [];
  variables: Record<string, string> = {};
  stdin: string | Error = "";
  /** One an attempt: a failure's code, or what the connection does. The last one repeats. */
  attempts: (string | FakeConnection)[] = ["ENOENT"];
  readonly sent: string[] = [];
  readonly sleeps: number[] = [];
  stdout = "";
  stderr = "";
  open = 0;
  #now = 0;

  env(name: string): string | undefined {
    return this.variables[name];
  }

  now(): number {
    return this.#now;
  }

  sleep(until: number): undefined {
    this.sleeps.push(until - this.#now);
    this.#now = until;
  }

  readStdin(): Uint8Array {
    if (typeof this.stdin !== "string") throw this.stdin;
    return this.encode(this.stdin);
  }

  connect(): Connection {
    const next = this.attempts.length > 1 ? this.attempts.shift() : this.attempts[0];
    if (next === undefined || typeof next === "string") throw hostFailure(next ?? "ENOENT");
    this.open += 1;
    const pieces = [...(next.pieces ?? [])];
    return {
      send: (data) => {
        this.sent.push(this.decode(data));
        return undefined;
      },
      receive: () => {
        const piece = pieces.shift();
        if (piece !== undefined) return this.encode(piece);
        if (next.failure !== undefined) throw hostFailure(next.failure);
        return new Uint8Array(0);
      },
      close: () => {
        this.open -= 1;
      },
    };
  }

  write(target: 1 | 2, data: Uint8Array): undefined {
    if (target === 1) this.stdout += this.decode(data);
    else this.stderr += this.decode(data);
  }

  encode(text: string): Uint8Array {
    return new TextEncoder().encode(text);
  }

  decode(data: Uint8Array): string {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(data);
  }
}
