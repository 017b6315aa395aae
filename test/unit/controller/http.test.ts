import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { Registry } from "prom-client";
import { serveHealth } from "../../../daemon/controller/http.ts";

/** Probes and metrics, and everything else that may come to their port. */

const host = "127.0.0.1";
let port = 0;
let unready: string | undefined = "objects are not listed yet";
let server: AsyncDisposable;

before(async () => {
  const free = createServer().listen(0, host);
  await once(free, "listening");
  ({ port } = free.address() as AddressInfo);
  free.close();
  await once(free, "close");
  const registry = new Registry();
  server = await serveHealth({ host, port }, { registry, unready: () => unready }, 300);
});
after(() => server[Symbol.asyncDispose]());

const get = async (path: string, options: RequestInit = {}) => {
  const answer = await fetch(`http://${host}:${port}${path}`, options);
  return [answer.status, await answer.text()];
};

function open(text = ""): Socket {
  const socket = connect(port, host);
  socket.on("error", () => undefined).resume();
  socket.write(text);
  return socket;
}

test("it is healthy from the start, and ready when it knows the cluster", async () => {
  assert.deepEqual(await get("/healthz"), [200, "ok\n"]);
  assert.deepEqual(await get("/readyz?verbose"), [503, "objects are not listed yet\n"]);
  unready = undefined;
  assert.deepEqual(await get("/readyz"), [200, "ok\n"]);
  assert.equal((await get("/metrics"))[0], 200);
  for (const path of ["/", "/metrics/x", "/constructor", "//", `/${"x".repeat(10_000)}`])
    assert.equal((await get(path))[0], 404, path.slice(0, 20));
  assert.equal((await get("/healthz", { method: "POST", body: "x".repeat(1_000_000) }))[0], 200);
});

test("hundreds of callers who say nothing, or half of something, keep no probe out and are cut off", async () => {
  const texts = ["", "GET", "GET /metrics HTTP/1.1\r\nhost: x\r\n", "\x16\x03\x01", "\r\n\r\n"];
  const sockets = Array.from({ length: 300 }, (_, index) => open(texts[index % texts.length]));
  const closed = Promise.all(sockets.map((socket) => once(socket, "close")));
  assert.deepEqual(await get("/healthz"), [200, "ok\n"]);
  await closed;
  assert.deepEqual(await get("/healthz"), [200, "ok\n"]);
});

test("an address that is taken is an error that names it", async () => {
  await assert.rejects(
    serveHealth({ host, port }, { registry: new Registry(), unready: () => undefined }),
    new RegExp(`listen on ${host}:${port}: .*EADDRINUSE`),
  );
});
