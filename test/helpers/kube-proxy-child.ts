// Stands between podnetd and an API server: kube-proxy-child.ts PORT TARGET CA_FILE [PAIR_FILE]. With a file of a certificate and its
// key it speaks TLS, and reads the file again with each mode. What it does with requests is set by lines on
// stdin: {"delay": ms, "status": n, "down": true, "drop": true, "expire": true, "cutAfter": n, "stay": true}.
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer, request } from "node:https";
import { createInterface } from "node:readline";

interface Mode {
  /** Milliseconds before a request is passed on. */
  readonly delay?: number;
  /** Requests get this status. */
  readonly status?: number;
  /** Connections are cut at once. */
  readonly down?: boolean;
  /** Requests whose path matches get 403. */
  readonly refuse?: string;
  /** Watches get 410. */
  readonly expire?: boolean;
  /** After so many writes the server has done it and nobody hears of it: every connection is cut, and stays so unless `stay`. */
  readonly cutAfter?: number;
  readonly stay?: boolean;
  /** Requests whose path matches go to this server. */
  readonly route?: { readonly server: string; readonly paths: string };
}

const [, , port = "", target = "", caFile = "", pairFile = ""] = process.argv;
const ca = readFileSync(caFile);
let mode: Mode = {};
let writes = 0;
const open = new Set<ServerResponse>();

function answer(response: ServerResponse, status: number): void {
  const body = {
    kind: "Status",
    apiVersion: "v1",
    status: "Failure",
    code: status,
    message: `proxy says ${status}`,
  };
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

function pass(incoming: IncomingMessage, response: ServerResponse): void {
  const { server, paths } = mode.route ?? { server: target, paths: "^$" };
  const isOther = new RegExp(paths).test(incoming.url ?? "");
  const url = new URL(incoming.url ?? "/", isOther ? server : target);
  const headers = { ...incoming.headers, host: url.host };
  const trust = isOther ? { rejectUnauthorized: false } : { ca };
  const options = { method: incoming.method ?? "GET", headers, ...trust };
  const outgoing = request(url, options, (from) => {
    if (isLastWrite(incoming, from.statusCode ?? 0)) return cut();
    response.writeHead(from.statusCode ?? 502, from.headers);
    from.pipe(response);
    from.on("error", () => response.destroy());
  });
  outgoing.on("error", () => response.destroy());
  response.on("close", () => outgoing.destroy());
  incoming.pipe(outgoing);
}

/** Events are for people: they are not counted. */
function isLastWrite({ method, url }: IncomingMessage, status: number): boolean {
  if (mode.cutAfter === undefined || method === "GET" || url?.includes("/events")) return false;
  if (status < 300) writes++;
  return writes === mode.cutAfter;
}

function cut(): void {
  const { stay } = mode;
  mode = stay === true ? {} : { down: true };
  for (const response of open) response.destroy();
  process.stdout.write("cut\n");
}

function pair(): { cert: string; key: string } {
  const text = readFileSync(pairFile, "utf8");
  return { cert: text, key: text };
}

function serve(incoming: IncomingMessage, response: ServerResponse): void {
  open.add(response);
  response.on("close", () => open.delete(response));
  const isWatch = incoming.url?.includes("watch=true") === true;
  if (mode.down === true) incoming.socket.destroy();
  else if (mode.status !== undefined) answer(response, mode.status);
  else if (mode.refuse !== undefined && new RegExp(mode.refuse).test(incoming.url ?? ""))
    answer(response, 403);
  else if (isWatch && mode.expire === true) answer(response, 410);
  else setTimeout(() => pass(incoming, response), mode.delay ?? 0);
}

const tls = pairFile === "" ? undefined : createTlsServer(pair(), serve);
const server = tls ?? createServer(serve);
server.on("connection", (socket) => {
  socket.on("error", () => undefined);
  if (mode.down === true) socket.destroy();
});

createInterface(process.stdin).on("line", (text) => {
  const { drop, ...next } = JSON.parse(text) as Mode & { readonly drop?: boolean };
  mode = next;
  tls?.setSecureContext(pair());
  if (mode.down === true) server.closeAllConnections();
  writes = 0;
  if (drop === true || mode.down === true) for (const response of open) response.destroy();
  process.stdout.write(`mode ${text}\n`);
});
server.listen(Number(port), "127.0.0.1", () => process.stdout.write("listening\n"));
process.on("SIGTERM", () => process.exit(0));
