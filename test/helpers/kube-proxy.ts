import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ApiServer } from "./apiserver.ts";
import { RunningProgram } from "./process.ts";

/** What the proxy does with requests; nothing: passes them on. */
export interface ProxyMode {
  /** Milliseconds before a request is passed on. */
  readonly delay?: number;
  /** Requests get this status. */
  readonly status?: number;
  /** Connections are cut at once, those that are open too. */
  readonly down?: boolean;
  /** Requests whose path matches this expression get 403. */
  readonly refuse?: string;
  /** Watches get 410; with `drop` those that are open are cut first. */
  readonly expire?: boolean;
  readonly drop?: boolean;
  /** After so many writes every connection is cut before the answer, and stays so unless `stay`. */
  readonly cutAfter?: number;
  readonly stay?: boolean;
  /** Requests whose path matches the expression go to this server. */
  readonly route?: { readonly server: string; readonly paths: string };
}

/**
 * A proxy between podnetd and the API server, for faults: `http://127.0.0.1:PORT` in the API server's namespace, `https:` with a
 * certificate.
 */
export class KubeProxy implements AsyncDisposable {
  readonly server: string;
  readonly #program: RunningProgram;
  #from = 0;

  private constructor(api: ApiServer, port: number, pairFile: string | undefined) {
    this.server = `${pairFile === undefined ? "http" : "https"}://127.0.0.1:${port}`;
    const script = join(import.meta.dirname, "kube-proxy-child.ts");
    const ca = join(api.folder, "api", "apiserver.crt");
    const pair = pairFile === undefined ? [] : [pairFile];
    const args = [String(port), api.server, ca, ...pair];
    this.#program = new RunningProgram("proxy", api.node, [process.execPath, script, ...args]);
  }

  /** `pairFile`: PEM of a certificate and its key, read again with each mode. */
  static async start(api: ApiServer, port = 8001, pairFile?: string): Promise<KubeProxy> {
    const proxy = new KubeProxy(api, port, pairFile);
    await proxy.#said("listening");
    return proxy;
  }

  async set(mode: ProxyMode): Promise<void> {
    const text = JSON.stringify(mode);
    const before = this.#program.output.length;
    this.#from = before;
    this.#program.write(`${text}\n`);
    await this.#said(`mode ${text}`, before);
  }

  /** Resolves with true when the connections were cut since `set`, with false when `unless` resolves first. */
  async wasCut(unless: Promise<unknown>): Promise<boolean> {
    let isOver = false;
    const over = unless.then(() => {
      isOver = true;
    });
    while (!isOver) {
      if (this.#program.output.slice(this.#from).includes("\ncut\n")) {
        over.catch(() => undefined);
        return true;
      }
      await sleep(10);
    }
    return false;
  }

  async #said(what: string, from = 0): Promise<void> {
    const until = Date.now() + 20_000;
    while (!this.#program.output.slice(from).includes(what)) {
      this.#program.mustRun();
      if (Date.now() > until) throw new Error(`proxy: not said within 20 s: ${what}`);
      await sleep(10);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.stop(2);
  }
}
