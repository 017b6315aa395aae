import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Answer,
  AnswerError,
  AnswerReader,
  longestBody,
  requestHead,
  requestLine,
} from "../../../cmd/podnet/wire.ts";

const text = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString("latin1");

function read(...pieces: string[]): Answer | undefined {
  const reader = new AnswerReader();
  let answer: Answer | undefined;
  for (const piece of pieces) answer = reader.push(Buffer.from(piece, "latin1"));
  return answer;
}

const whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello";

test("an answer in one piece is read", () => {
  const answer = read(whole);
  assert.equal(answer?.status, 200);
  assert.equal(text(answer?.body), "hello");
});

test("an answer in pieces of any size is the same answer", () => {
  for (let size = 1; size < whole.length; size++) {
    const pieces: string[] = [];
    for (let at = 0; at < whole.length; at += size) pieces.push(whole.slice(at, at + size));
    assert.equal(text(read(...pieces)?.body), "hello", `pieces of ${size}`);
  }
});

test("an answer without a body is complete with its head", () => {
  assert.equal(read("HTTP/1.0 500\r\ncontent-length:0\r\n\r\n")?.status, 500);
});

test("an answer that is not complete yet is no answer", () => {
  assert.equal(read(whole.slice(0, -1)), undefined);
  assert.equal(read("HTTP/1.1 200 OK\r\nContent-"), undefined);
  assert.equal(read("H"), undefined);
});

const head = (fields: string) => `HTTP/1.1 200 OK\r\n${fields}\r\n\r\n`;
const wrong: { readonly [what: string]: { readonly bytes: string; readonly says: RegExp } } = {
  "not HTTP": { bytes: "SSH-2.0-x\r\n", says: /not HTTP: "SSH-2\.0-x/ },
  "zero bytes": { bytes: "\0\0\0\0", says: /not HTTP/ },
  "a provisional answer": {
    bytes: "HTTP/1.1 100 Continue\r\n\r\n",
    says: /status line "HTTP\/1\.1 100/,
  },
  "an unknown HTTP version": { bytes: "HTTP/1.2 200 OK\r\n\r\n", says: /status line/ },
  "chunked coding": {
    bytes: head("Content-Length: 3\r\nTransfer-Encoding: chunked"),
    says: /Transfer-Encoding/,
  },
  "no length": { bytes: head("X: y"), says: /no Content-Length/ },
  "no fields": { bytes: "HTTP/1.1 200 OK\r\n\r\n", says: /no Content-Length/ },
  "a negative length": { bytes: head("Content-Length: -1"), says: /Content-Length "-1"/ },
  "a hexadecimal length": { bytes: head("Content-Length: 0x10"), says: /Content-Length "0x10"/ },
  "an empty length": { bytes: head("Content-Length:"), says: /Content-Length ""/ },
  "two lengths": {
    bytes: head("Content-Length: 3\r\nContent-Length: 4"),
    says: /two Content-Lengths/,
  },
  "a length above the limit": {
    bytes: head(`Content-Length: ${longestBody + 1}`),
    says: /the limit is 16777216/,
  },
  "a body longer than its length": {
    bytes: `${head("Content-Length: 3")}abcd`,
    says: /longer than its Content-Length 3/,
  },
  "a field without a name": { bytes: head(": x"), says: /bad header line ": x"/ },
  "an endless head": { bytes: head(`X: ${"y".repeat(17_000)}`), says: /head longer than/ },
};
for (const [what, { bytes, says }] of Object.entries(wrong)) {
  test(`${what} is refused`, () => {
    assert.throws(
      () => read(bytes),
      (error: unknown) => error instanceof AnswerError && says.test(error.message),
    );
  });
}

test("two equal lengths are one length", () => {
  assert.equal(text(read(`${head("Content-Length: 2\r\nContent-Length: 2")}ab`)?.body), "ab");
});

test("the request is a head with the length, and one line of JSON", () => {
  assert.equal(
    requestHead(7),
    "POST /cni HTTP/1.1\r\nHost: podnetd\r\nContent-Type: application/octet-stream\r\nContent-Length: 7\r\nConnection: close\r\n\r\n",
  );
  const line = requestLine({ CNI_ARGS: "A=b\nc" });
  assert.equal(line, '{"protocol":1,"env":{"CNI_ARGS":"A=b\\nc"}}\n');
});
