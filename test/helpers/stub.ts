import { execFileSync, spawn } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { resolve } from "node:path";

/** A package of the stub, built when it is not up to date: the shipped ones, and the one with AddressSanitizer. */
export type StubBuild = "x64" | "arm64" | "asan" | "pkg";

const outputs: { readonly [build in StubBuild]: string } = {
  x64: "dist/bin/podnet",
  arm64: "dist/bin/podnet-arm64",
  asan: "dist/test/podnet-asan",
  pkg: "dist/bin/podnet-pkg",
};

/** The command line that starts a build of the stub. Instant when nothing has changed since it was built. */
export function buildStub(build: StubBuild): string[] {
  const script = build === "pkg" ? ["conf/build/stub-pkg.sh"] : ["conf/build/stub.sh", build];
  execFileSync("bash", script, { stdio: ["ignore", "ignore", "inherit"] });
  const program = resolve(outputs[build]);
  return build === "arm64" ? ["qemu-aarch64-static", program] : [program];
}

export interface StubRun {
  readonly command: readonly string[];
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Called with each piece of stderr. */
  readonly onStderr?: (text: string) => void;
  /** Nobody reads stdout. */
  readonly deaf?: boolean;
  /** "closed": no descriptor 0 at all; "open": a pipe that never ends. */
  readonly stdin?: string | Uint8Array | "closed" | "open";
}

export interface StubAnswer {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: Buffer;
  readonly stderr: string;
  readonly ms: number;
  /** stdout as JSON. Throws when it is not. */
  json(): { cniVersion: string; code: number; msg: string; details?: string };
}

/** Runs the stub to its end, 60 s at most; the environment is `env` and nothing else. */
export function runStub(run: StubRun): Promise<StubAnswer> {
  const [program = "", ...first] = run.command;
  let command = [program, ...first, ...(run.args ?? [])];
  if (run.stdin === "closed") command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", ...command];
  const started = performance.now();
  return new Promise((done, broken) => {
    const child = spawn(command[0] ?? "", command.slice(1), {
      env: { ASAN_OPTIONS: "abort_on_error=0:exitcode=99", ...run.env } as NodeJS.ProcessEnv,
      timeout: 60_000,
      killSignal: "SIGKILL",
    });
    const out: Buffer[] = [];
    let stderr = "";
    if (!run.deaf) child.stdout.on("data", (part: Buffer) => out.push(part));
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
      run.onStderr?.(text);
    });
    child.on("error", broken);
    child.on(run.deaf ? "exit" : "close", (code: number | null, signal: NodeJS.Signals | null) => {
      const stdout = Buffer.concat(out);
      const ms = performance.now() - started;
      child.stdin.destroy();
      child.stdout.destroy();
      done({ code, signal, stdout, stderr, ms, json: () => JSON.parse(stdout.toString()) });
    });
    child.stdin.on("error", () => undefined);
    if (run.stdin !== "open" && run.stdin !== "closed") child.stdin.end(run.stdin ?? "");
  });
}

/** One request as it came over the socket. */
export interface WireRequest {
  readonly head: string;
  readonly line: { protocol: number; env: Record<string, string> };
  readonly stdin: Buffer;
}

/** What a WireServer does with a connection; `request` has come in whole. */
export type WireAnswer = (socket: Socket, request: WireRequest) => void;

/** An answer as podnetd gives it. */
export function answerWith(status: number, body: string | Uint8Array): WireAnswer {
  const bytes = Buffer.from(body);
  return (socket) => {
    socket.write(`HTTP/1.1 ${status} X\r\nContent-Length: ${bytes.length}\r\n\r\n`);
    socket.end(bytes);
  };
}

/** A daemon of a few lines at the other end of the stub's socket, for answers that no real daemon gives. */
export class WireServer {
  readonly path: string;
  readonly requests: WireRequest[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(path: string, answer: WireAnswer, connected?: (socket: Socket) => void) {
    this.path = path;
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      // The stub may go away at any moment: that is what some tests are about.
      socket.on("error", () => undefined);
      this.#serve(socket, answer);
      connected?.(socket);
    });
  }

  /** `connected` sees each connection before anything was read from it. */
  static async listen(
    path: string,
    answer: WireAnswer,
    connected?: (socket: Socket) => void,
  ): Promise<WireServer> {
    rmSync(path, { force: true });
    const server = new WireServer(path, answer, connected);
    await new Promise<void>((done) => server.#server.listen(path, done));
    return server;
  }

  #serve(socket: Socket, answer: WireAnswer): void {
    let bytes = Buffer.alloc(0);
    let served = false;
    socket.on("data", (part: Buffer) => {
      if (served) return;
      bytes = Buffer.concat([bytes, part]);
      const request = parseRequest(bytes);
      if (request === undefined) return;
      served = true;
      this.requests.push(request);
      answer(socket, request);
    });
  }

  /** Stops listening and cuts every connection, as a killed daemon does. */
  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((done) => this.#server.close(done));
    if (existsSync(this.path)) rmSync(this.path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

function parseRequest(bytes: Buffer): WireRequest | undefined {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const head = bytes.subarray(0, end).toString("latin1");
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1]);
  const body = bytes.subarray(end + 4);
  if (body.length < length) return undefined;
  if (body.length > length) throw new Error("request longer than its Content-Length");
  const newline = body.indexOf(10);
  return {
    head,
    line: JSON.parse(body.subarray(0, newline).toString("utf8")),
    stdin: Buffer.from(body.subarray(newline + 1)),
  };
}
