import { createServer, type Server } from "node:http";
import type { Registry } from "prom-client";
import { errorText } from "../../lib/base/errors.ts";
import type { ListenAddress } from "./config.ts";

export interface HealthSources {
  readonly registry: Registry;
  /** Everything was read once; undefined when it was, else what is missing. */
  readonly unready: () => string | undefined;
}

/** Milliseconds that a caller may take to send a request, or say nothing. */
const usualPatience = 5_000;
/** More than a cluster's probes and scrapers are; who opens more and is silent is cut off soon, so that a probe is never kept out for long. */
const mostConnections = 512;

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly type?: string;
}

/** Serves /metrics, /healthz (the process runs) and /readyz (it knows the cluster). Rejects when the address can't be had. */
export async function serveHealth(
  address: ListenAddress,
  sources: HealthSources,
  patience = usualPatience,
): Promise<AsyncDisposable> {
  const limits = {
    headersTimeout: patience,
    requestTimeout: patience,
    keepAliveTimeout: patience,
    connectionsCheckingInterval: Math.min(1_000, patience),
  };
  const server = createServer(limits, (request, response) => {
    answer(request.url ?? "/", sources)
      .catch((error: unknown) => ({ status: 500, body: `${errorText(error)}\n` }) as Answer)
      .then(({ status, body, type = "text/plain; charset=utf-8" }) => {
        response.writeHead(status, { "content-type": type });
        response.end(body);
      })
      .catch(() => response.destroy());
  });
  server.maxConnections = mostConnections;
  await listen(server, address);
  return {
    [Symbol.asyncDispose]: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(url: string, { registry, unready }: HealthSources): Promise<Answer> {
  const path = url.split("?")[0];
  if (path === "/metrics") {
    return { status: 200, body: await registry.metrics(), type: registry.contentType };
  }
  if (path === "/healthz") return { status: 200, body: "ok\n" };
  if (path !== "/readyz") return { status: 404, body: "not found\n" };
  const missing = unready();
  return missing === undefined
    ? { status: 200, body: "ok\n" }
    : { status: 503, body: `${missing}\n` };
}

async function listen(server: Server, { host, port }: ListenAddress): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => {
      reject(new Error(`listen on ${host}:${port}: ${error.message}`, { cause: error }));
    });
    server.listen(port, host, resolve);
  });
}
