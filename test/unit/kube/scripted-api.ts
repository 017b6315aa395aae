import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { KubeClient } from "../../../lib/kube/client.ts";
import { Credentials } from "../../../lib/kube/credentials.ts";

type Handler = (request: IncomingMessage, url: URL, response: ServerResponse) => void;

/** An HTTP server that answers by a function: for faults that no real API server can be told to have. */
export class ScriptedApi implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "podnet-test-"));
  readonly requests: string[] = [];
  readonly authorizations: (string | undefined)[] = [];
  handler: Handler;
  readonly #server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://x");
    this.requests.push(`${request.method} ${url.pathname}${url.search}`);
    this.authorizations.push(request.headers.authorization);
    this.handler(request, url, response);
  });

  private constructor(handler: Handler) {
    this.handler = handler;
  }

  static async start(handler: Handler): Promise<ScriptedApi> {
    const api = new ScriptedApi(handler);
    await new Promise<void>((done) => api.#server.listen(0, "127.0.0.1", done));
    return api;
  }

  get server(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Writes a kubeconfig for it. */
  kubeconfig(user: object = { token: "t" }): string {
    const path = join(this.folder, "kubeconfig");
    const config = {
      "current-context": "x",
      contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
      clusters: [{ name: "x", cluster: { server: this.server } }],
      users: [{ name: "x", user }],
    };
    writeFileSync(path, JSON.stringify(config));
    return path;
  }

  client(user?: object): KubeClient {
    return new KubeClient(new Credentials(this.kubeconfig(user)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
    rmSync(this.folder, { recursive: true });
  }
}

export function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

export function line(response: ServerResponse, type: string, object: unknown): void {
  response.write(`${JSON.stringify({ type, object })}\n`);
}

export function namespace(name: string, resourceVersion: string, labels: object = {}): object {
  return { metadata: { name, resourceVersion, labels } };
}

/** Waits until the condition holds; throws after five seconds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const end = performance.now() + 5_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`not within 5 s: ${what}`);
    await new Promise((done) => setTimeout(done, 5));
  }
}
