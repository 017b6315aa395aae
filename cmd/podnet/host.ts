/**
 * What the stub needs from the engine that runs it: Node (`main-node.ts`) or QuickJS with `host.c` (`main-quickjs.ts`).
 * Times are milliseconds of a clock that starts with the process and never goes back; `until` is a moment of that clock.
 * A call that can't end before `until` throws an error with the code `ETIMEDOUT`; other failures carry the kernel's
 * code (`ENOENT`, `ECONNREFUSED`, ...). Byte arrays are never re-encoded.
 */
export interface Host {
  readonly args: readonly string[];
  /** The value of an environment variable; bytes that are not UTF-8 come as U+FFFD. */
  env(name: string): string | undefined;
  now(): number;
  sleep(until: number): Promise<void> | undefined;
  /** All of stdin. Throws `EMSGSIZE` when it is longer than `limit` bytes. */
  readStdin(limit: number, until: number): Promise<Uint8Array> | Uint8Array;
  connect(path: string, until: number): Promise<Connection> | Connection;
  /** Writes all of it to stdout (1) or stderr (2). */
  write(target: 1 | 2, data: Uint8Array, until: number): Promise<void> | undefined;
  /** UTF-8, both ways; bytes that are not UTF-8 become U+FFFD. */
  encode(text: string): Uint8Array;
  decode(data: Uint8Array): string;
}

/** A connected unix stream socket. */
export interface Connection {
  send(data: Uint8Array, until: number): Promise<void> | undefined;
  /** What has arrived, at least one byte; empty when the other side has closed. */
  receive(until: number): Promise<Uint8Array> | Uint8Array;
  close(): void;
}

/** The kernel's code of a failure that a Host reports (`ENOENT`), or undefined for any other error. */
export function hostErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}
