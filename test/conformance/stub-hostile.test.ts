// The stub against daemons that misbehave: always a CNI error within the call's time, never a crash, never half an answer.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { answerWith, buildStub, runStub, type StubAnswer, WireServer } from "../helpers/stub.ts";

const folder = mkdtempSync(join(tmpdir(), "podnet-hostile-"));
after(() => rmSync(folder, { recursive: true }));
let sockets = 0;

interface Case {
  readonly serve: (socket: Socket) => unknown;
  /** What the error says; undefined: the answer counts, and is this. */
  readonly says?: RegExp;
  readonly answer?: string | number;
}

const ok = "HTTP/1.1 200 OK\r\n";
const mebibyte = Buffer.alloc(1 << 20, 0x61);

/** Writes the same again and again until the other side has gone. */
function pour(socket: Socket, part: Buffer): void {
  const more = () => {
    while (!socket.destroyed && socket.write(part));
  };
  socket.on("drain", more);
  more();
}

async function drip(socket: Socket, text: string, ms: number): Promise<void> {
  for (const character of text) {
    if (socket.destroyed) return;
    socket.write(character);
    if (ms > 0) await sleep(ms);
    else await new Promise(setImmediate);
  }
  socket.end();
}

const lost = /connection lost before the answer, waited/;
const cases: { readonly [name: string]: Case } = {
  "closes at once": { serve: (socket) => socket.end(), says: lost },
  "closes within the head": { serve: (socket) => socket.end(`${ok}Content-Le`), says: lost },
  "closes within the body": {
    serve: (socket) => socket.end(`${ok}Content-Length: 10\r\n\r\n{"a":`),
    says: lost,
  },
  "sends less than the length and stays": {
    serve: (socket) => socket.write(`${ok}Content-Length: 10\r\n\r\n{}`),
    says: /no answer within/,
  },
  "sends more than the length": {
    serve: (socket) => socket.end(`${ok}Content-Length: 1\r\n\r\n{}`),
    says: /longer than its Content-Length 1/,
  },
  "sends no length": { serve: (socket) => socket.end(`${ok}\r\n{}`), says: /no Content-Length/ },
  "sends a length above the limit": {
    serve: (socket) => socket.write(`${ok}Content-Length: 99999999999\r\n\r\n`),
    says: /body of 99999999999 bytes, the limit is/,
  },
  "sends a length that no number holds": {
    serve: (socket) => socket.write(`${ok}Content-Length: ${"9".repeat(400)}\r\n\r\n`),
    says: /Content-Length "999/,
  },
  "sends a body without end": {
    serve: (socket) => {
      socket.write(`${ok}Content-Length: 16777216\r\n\r\n`);
      pour(socket, mebibyte.subarray(0, 65_521));
    },
    says: /longer than its Content-Length/,
  },
  "sends a head without end": {
    serve: (socket) => {
      socket.write(`${ok}X: `);
      pour(socket, mebibyte);
    },
    says: /head longer than/,
  },
  "sends a head of empty pieces": {
    serve: (socket) => void drip(socket, `${ok}${"X: y\r\n".repeat(3000)}`, 0),
    says: /head longer than/,
  },
  "sends chunks": {
    serve: (socket) => socket.end(`${ok}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`),
    says: /Transfer-Encoding is not supported/,
  },
  "sends zeros": { serve: (socket) => pour(socket, Buffer.alloc(65_536)), says: /not HTTP/ },
  "sends bytes that are not text": {
    serve: (socket) => socket.write(Buffer.from([0xff, 0xfe, 0x80, 0xc3, 0x28, 10, 13])),
    says: /not HTTP: "ÿþ/,
  },
  "drips without end": {
    serve: (socket) => void drip(socket, `${ok}Content-Length: 999\r\n\r\n${"x".repeat(999)}`, 50),
    says: /no answer within/,
  },
  "never reads": { serve: () => undefined, says: /no answer within/ },
  "drips the whole answer": {
    serve: (socket) => void drip(socket, `${ok}Content-Length: 2\r\n\r\n{}`, 5),
    answer: "{}",
  },
  "sends the longest answer there may be": {
    serve: (socket) => {
      socket.write(`${ok}Content-Length: 16777216\r\n\r\n`);
      for (let i = 0; i < 16; i++) socket.write(mebibyte);
      socket.end();
    },
    answer: 16_777_216,
  },
  "sends an error that is 16 MB of nothing": {
    serve: (socket) => {
      socket.write("HTTP/1.1 500 X\r\nContent-Length: 16777216\r\n\r\n");
      for (let i = 0; i < 16; i++) socket.write(mebibyte);
      socket.end();
    },
    says: /HTTP status 500 and no CNI error/,
  },
  "sends an error nested without end": {
    serve: (socket) => answerWith(500, `{"code":1,"msg":${"[".repeat(1 << 20)}`)(socket, noRequest),
    says: /HTTP status 500 and no CNI error/,
  },
};
const noRequest = { head: "", line: { protocol: 1, env: {} }, stdin: Buffer.alloc(0) };

function checkAnswer(answer: StubAnswer, expected: Case): void {
  const context = `${answer.stdout.toString().slice(0, 300)} ${answer.stderr}`;
  assert.doesNotMatch(answer.stderr, /Sanitizer|runtime error/);
  assert.equal(answer.signal, null, context);
  if (expected.says === undefined) {
    assert.equal(answer.code, 0, context);
    if (typeof expected.answer === "number") assert.equal(answer.stdout.length, expected.answer);
    else assert.equal(answer.stdout.toString(), expected.answer);
    return;
  }
  assert.equal(answer.code, 1, context);
  assert.equal(answer.json().code, 11, context);
  assert.match(answer.json().msg, expected.says);
}

for (const build of ["asan", "x64", "pkg"] as const) {
  describe(`the stub, ${build}, and a daemon that`, { concurrency: 2 }, () => {
    const command = buildStub(build);
    const call = (path: string, keys: object = {}, deaf = false) =>
      runStub({
        command,
        deaf,
        env: {
          CNI_COMMAND: "ADD",
          CNI_CONTAINERID: "c",
          CNI_NETNS: "/x",
          CNI_IFNAME: "eth0",
        },
        stdin: JSON.stringify({
          cniVersion: "1.1.0",
          name: "n",
          daemonSocket: path,
          daemonWait: 0.3,
          daemonTimeout: 2,
          ...keys,
        }),
      });

    for (const [name, expected] of Object.entries(cases)) {
      test(name, async () => {
        const path = join(folder, `${++sockets}`);
        await using server = await WireServer.listen(path, (socket) => void expected.serve(socket));
        // What must succeed may take its time: the sanitizer, a busy machine.
        const answer = await call(
          server.path,
          expected.says === undefined ? { daemonTimeout: 30 } : {},
        );
        checkAnswer(answer, expected);
        assert.ok(expected.says === undefined || answer.ms < 20_000, `${answer.ms} ms`);
      });
    }

    test("refuses before it has read the request", async () => {
      const path = join(folder, `${++sockets}`);
      const body = '{"cniVersion":"1.1.0","code":11,"msg":"shutting down"}';
      await using server = await WireServer.listen(
        path,
        () => undefined,
        (socket) => {
          answerWith(503, body)(socket, noRequest);
        },
      );
      const answer = await call(server.path, { x: "y".repeat(1 << 20) });
      assert.equal(answer.code, 1);
      assert.match(answer.json().msg, /shutting down|connection lost/);
      assert.doesNotMatch(answer.stderr, /Sanitizer/);
    });

    test("answers more than the runtime reads", async () => {
      const path = join(folder, `${++sockets}`);
      await using server = await WireServer.listen(path, answerWith(200, mebibyte));
      const answer = await call(server.path, {}, true);
      assert.equal(answer.code, 1);
      assert.ok(answer.ms < 20_000, `${answer.ms} ms`);
      assert.doesNotMatch(answer.stderr, /Sanitizer/);
    });

    test("resets the connection with half of the request unread", async () => {
      const path = join(folder, `${++sockets}`);
      await using server = await WireServer.listen(
        path,
        () => undefined,
        (socket) => {
          socket.removeAllListeners("data").once("data", () => socket.destroy());
        },
      );
      const answer = await call(server.path, { x: "y".repeat(1 << 20) });
      assert.equal(answer.json().code, 11);
      assert.match(answer.json().msg, lost);
      assert.doesNotMatch(answer.stderr, /Sanitizer/);
    });

    test("never reads the request of a megabyte", async () => {
      const path = join(folder, `${++sockets}`);
      await using server = await WireServer.listen(
        path,
        () => undefined,
        (socket) => {
          socket.removeAllListeners("data").pause();
        },
      );
      const answer = await call(server.path, { x: "y".repeat(1 << 20) });
      assert.equal(answer.json().code, 11);
      assert.match(answer.json().msg, /no answer within [12]/);
    });
  });
}
