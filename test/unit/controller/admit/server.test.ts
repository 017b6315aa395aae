import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, request } from "node:https";
import { connect as connectPlain } from "node:net";
import { after, before, test } from "node:test";
import { connect, type TLSSocket } from "node:tls";
import { AdmissionServer } from "../../../../daemon/controller/admit/server.ts";
import type { ServingPair } from "../../../../lib/kube/issue-pair.ts";
import { issueServingPair } from "../../../../lib/kube/serving-pair.ts";
import { until } from "../../kube/scripted-api.ts";

/** The webhooks' server over TLS, and everything that may come to its port. */

const names = ["podnet-controller.podnet-system.svc"];
const servername = names[0] ?? "";
const host = "127.0.0.1";
const faults: unknown[] = [];
let decide = async () => ({});
let server: AdmissionServer;
let pair: ServingPair;
let budget = 0;

before(async () => {
  pair = await issueServingPair({ names, lifetime: 86_400_000, now: Date.now() });
  server = new AdmissionServer({ decide: () => decide(), onFault: (error) => faults.push(error) });
  await server.listen({ host, port: 0 });
  server.use(pair);
  budget = server.memoryLeft;
});
after(() => server[Symbol.asyncDispose]());

const review = (more: object = {}, top: object = {}) => ({
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  request: {
    uid: "u",
    operation: "CREATE",
    kind: { group: "", version: "v1", kind: "Pod" },
    ...more,
  },
  ...top,
});

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Status and text; status 0: the connection was closed, with the reason. */
async function post(
  body: string | Buffer,
  options: { path?: string; method?: string; agent?: Agent; ca?: string; port?: number } = {},
): Promise<Answer> {
  const { path = "/validate", method = "POST", agent, ca = pair.ca, port = server.port } = options;
  return await new Promise((done) => {
    const sent = request(
      { host, port, servername, ca, path, method, agent: agent ?? false },
      (answer) => {
        const parts: string[] = [];
        answer.setEncoding("utf8").on("data", (part) => parts.push(part));
        answer.on("end", () => done({ status: answer.statusCode ?? 0, text: parts.join("") }));
        answer.on("error", (error) => done({ status: 0, text: error.message }));
      },
    );
    sent.on("error", (error) => done({ status: 0, text: error.message }));
    sent.end(body);
  });
}

/** It still answers, and has given back all memory. */
async function isWell(): Promise<void> {
  const { status, text } = await post(JSON.stringify(review()));
  assert.equal(status, 200);
  assert.equal(JSON.parse(text).response.uid, "u");
  await until(() => server.memoryLeft === budget, "memory given back");
}

async function open(): Promise<TLSSocket> {
  const socket = connect({ host, port: server.port, servername, ca: pair.ca });
  socket.on("error", () => undefined);
  await once(socket, "secureConnect");
  return socket;
}

test("reviews of every wrong shape are answered with 400 and a reason", async () => {
  const shapes: unknown[] = [
    [null],
    null,
    5,
    "x",
    {},
    [],
    { ...review(), kind: "Pod" },
    { ...review(), apiVersion: "admission.k8s.io/v1beta1" },
    { ...review(), request: undefined },
    { ...review(), request: [] },
    review({ uid: undefined }),
    review({ uid: "" }),
    review({ uid: 5 }),
    review({ uid: "u".repeat(1_000_000) }),
    review({ operation: "PATCH" }),
    review({ kind: "Pod" }),
    review({ kind: {} }),
    review({ namespace: {} }),
  ];
  for (const shape of shapes) {
    const { status, text } = await post(JSON.stringify(shape));
    assert.equal(status, 400, JSON.stringify(shape).slice(0, 100));
    assert.match(text, /AdmissionReview/);
    assert.ok(text.length < 3_000);
  }
  for (const text of ["", "{", "words", "\0\0", '{"a":', Buffer.from([0xff, 0xfe])])
    assert.equal((await post(text)).status, 400);
  await isWell();
});

test("nesting of 10,000 levels, and of a million, is answered", async () => {
  const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
  for (const levels of [10_000, 1_000_000]) {
    const whole = await post(nested(levels));
    assert.ok([400, 500].includes(whole.status), String(whole.status));
    const object = JSON.stringify(review({ object: "HERE" })).replace('"HERE"', nested(levels));
    assert.ok([200, 400, 500].includes((await post(object)).status));
  }
  await isWell();
});

test("10 MB are refused with 413 or a closed connection, announced or not", async () => {
  const large = Buffer.alloc(10_000_000, " ");
  assert.ok([413, 0].includes((await post(large)).status));
  const socket = await open();
  socket.write("POST /validate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
  const parts: Buffer[] = [];
  socket.on("data", (part) => parts.push(part));
  for (let sent = 0; sent < 160 && !socket.destroyed; sent++)
    socket.write(`10000\r\n${"x".repeat(0x10000)}\r\n`);
  await once(socket, "close");
  assert.match(Buffer.concat(parts).toString(), /^HTTP\/1\.1 413 |^$/);
  await isWell();
});

test("bodies that come at the same time share bounded memory: the ones too many get 503", async () => {
  const sockets = await Promise.all(Array.from({ length: 8 }, open));
  const answers = sockets.map((socket) =>
    once(socket, "data").then(
      ([part]) => String(part),
      () => "closed",
    ),
  );
  for (const socket of sockets) {
    socket.write(
      `POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: ${6 * 1024 * 1024}\r\n\r\n`,
    );
    socket.write(Buffer.alloc(5 * 1024 * 1024, " "));
  }
  const first = await Promise.race(answers);
  assert.match(first, /503|closed/);
  for (const socket of sockets) socket.destroy();
  await isWell();
});

test("wrong paths and methods, and what is no HTTP or no TLS, end at once", async () => {
  const body = JSON.stringify(review());
  assert.equal((await post(body, { path: "/" })).status, 404);
  assert.equal((await post(body, { path: "/validate/x" })).status, 404);
  assert.equal((await post(body, { path: "/constructor" })).status, 404);
  assert.equal((await post("", { method: "GET" })).status, 405);
  assert.deepEqual(await post("", { method: "GET", path: "/healthz" }), {
    status: 200,
    text: "ok\n",
  });
  const garbage = await open();
  garbage.write("\x16\x03nonsense\r\n\r\n");
  garbage.resume();
  await once(garbage, "close");
  for (const text of ["GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00"]) {
    const plain = connectPlain(server.port, host);
    plain.on("error", () => undefined).resume();
    plain.end(text);
    await once(plain, "close");
  }
  await isWell();
});

test("a caller that half closes gets its answer; one that goes away costs nothing", async () => {
  const half = await open();
  const text = JSON.stringify(review());
  half.end(`POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: ${text.length}\r\n\r\n${text}`);
  const parts: Buffer[] = [];
  half.on("data", (part) => parts.push(part));
  await once(half, "close");
  assert.match(Buffer.concat(parts).toString(), /^HTTP\/1\.1 200 /);
  const goes = await open();
  goes.write("POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
  goes.destroy();
  const cut = await open();
  cut.end("POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
  cut.resume();
  await once(cut, "close");
  await isWell();
});

test("slow callers are cut off, and keep nobody waiting meanwhile", async () => {
  const handlers = { decide: async () => ({}), onFault: (error: unknown) => faults.push(error) };
  await using hasty = new AdmissionServer(handlers, { handshake: 300, request: 300 });
  await hasty.listen({ host, port: 0 });
  hasty.use(pair);
  const { port } = hasty;
  const silent = connectPlain(port, host);
  silent.on("error", () => undefined).resume();
  const closed: Promise<unknown>[] = [once(silent, "close")];
  const parts = ["", "POST", "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"];
  for (const part of parts.flatMap((text) => Array.from({ length: 20 }, () => text))) {
    const socket = connect({ host, port, servername, ca: pair.ca });
    socket.on("error", () => undefined).resume();
    closed.push(once(socket, "close"));
    socket.on("secureConnect", () => socket.write(part));
  }
  const fine = await post(JSON.stringify(review()), { port });
  assert.equal(fine.status, 200);
  await Promise.all(closed);
  assert.equal(hasty.memoryLeft, budget);
});

test("500 reviews at once are all answered", async () => {
  const answers = await Promise.all(
    Array.from({ length: 500 }, (_, index) => post(JSON.stringify(review({ uid: `u${index}` })))),
  );
  answers.forEach(({ status, text }, index) => {
    assert.equal(status, 200);
    assert.equal(JSON.parse(text).response.uid, `u${index}`);
  });
  await isWell();
});

test("a fault of podnet's own is told, answered with 500, and ends nothing", async () => {
  decide = async () => {
    throw new RangeError("out of stack");
  };
  faults.length = 0;
  const { status, text } = await post(JSON.stringify(review()));
  assert.equal(status, 500);
  assert.match(text, /out of stack/);
  assert.equal(faults.length, 1);
  decide = async () => ({});
  await isWell();
});

test("the certificate is replaced while requests run, on kept connections and new ones: none fails", async () => {
  const next = await issueServingPair({ names, lifetime: 86_400_000, now: Date.now() });
  const both = pair.ca + next.ca;
  const kept = new Agent({ keepAlive: true, maxSockets: 4 });
  let running = true;
  const failed: Answer[] = [];
  let count = 0;
  const load = async (agent?: Agent) => {
    while (running) {
      const answer = await post(JSON.stringify(review()), {
        ca: both,
        ...(agent ? { agent } : {}),
      });
      if (answer.status !== 200) failed.push(answer);
      count++;
    }
  };
  const loads = [load(), load(), load(kept), load(kept)];
  for (const one of [next, pair, next, pair, next]) {
    const before = count;
    server.use(one);
    await until(() => count >= before + 20, "requests go on");
  }
  running = false;
  await Promise.all(loads);
  kept.destroy();
  assert.deepEqual(failed, []);
  assert.equal((await post(JSON.stringify(review()), { ca: next.ca })).status, 200);
  assert.equal((await post(JSON.stringify(review()), { ca: pair.ca })).status, 0);
  server.use(pair);
});

test("before there is a certificate no handshake succeeds, and an address that is taken is an error", async () => {
  const handlers = { decide: async () => ({}), onFault: () => undefined };
  await using bare = new AdmissionServer(handlers);
  await bare.listen({ host, port: 0 });
  const socket = connect({ host, port: bare.port, servername, ca: pair.ca });
  const [error] = await once(socket, "error");
  assert.ok(error instanceof Error);
  await using second = new AdmissionServer(handlers);
  await assert.rejects(
    second.listen({ host, port: bare.port }),
    /listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/,
  );
});
