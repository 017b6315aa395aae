// Random environment, stdin and answers against the stub built with AddressSanitizer: always an exit code 0 or 1, JSON on
// stdout unless the daemon's own success went out, never a report of the sanitizer, always within the call's time.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import fc from "fast-check";
import { cniVersions } from "../../lib/cni/types.ts";
import { fuzz } from "../helpers/fuzz.ts";
import { buildStub, runStub, type StubAnswer, WireServer } from "../helpers/stub.ts";

const folder = mkdtempSync(join(tmpdir(), "podnet-fuzz-"));
const command = buildStub("asan");
let reply: readonly Uint8Array[] = [];
let server: WireServer;
before(async () => {
  server = await WireServer.listen(join(folder, "sock"), (socket) => {
    for (const piece of reply) socket.write(piece);
    socket.end();
  });
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true });
});

function check(answer: StubAnswer): void {
  const context = `${answer.stdout.toString("latin1").slice(0, 500)}\n${answer.stderr}`;
  assert.doesNotMatch(answer.stderr, /Sanitizer|runtime error|internal error/, context);
  assert.equal(answer.signal, null, context);
  assert.ok(answer.code === 0 || answer.code === 1, context);
  assert.ok(answer.ms < 10_000, `${answer.ms} ms`);
  if (answer.code === 1) {
    const error = answer.json();
    assert.equal(typeof error.msg, "string", context);
    assert.notEqual(error.code, 999, context);
  }
}

const identity = { CNI_CONTAINERID: "c", CNI_NETNS: "/x", CNI_IFNAME: "eth0", CNI_PATH: "/p" };
const config = () =>
  JSON.stringify({
    cniVersion: "1.1.0",
    name: "n",
    daemonSocket: server.path,
    daemonWait: 0,
    daemonTimeout: 2,
  });

const verb = fc.constantFrom("ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION", "add", "");
/** Text that the kernel takes as a variable: no zero bytes. */
const variable = fc.string({ unit: "binary" }).map((text) => text.replaceAll("\0", ""));

fuzz(
  "the stub, any environment",
  fc.asyncProperty(
    verb,
    fc.dictionary(
      fc.constantFrom(...Object.keys(identity), "CNI_ARGS", "TRACEPARENT", "PODNET_DELEGATE"),
      variable,
    ),
    async (CNI_COMMAND, changes) => {
      reply = [Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")];
      const env = { CNI_COMMAND, ...identity, ...changes };
      check(await runStub({ command, env, stdin: config() }));
    },
  ),
);

/** Never with the default socket: a daemon may run on this machine. */
const keys = fc.record(
  {
    cniVersion: fc.oneof(fc.constantFrom(...cniVersions), fc.jsonValue()),
    name: fc.oneof(fc.constant("n"), fc.jsonValue()),
    daemonWait: fc.constant(0),
    daemonTimeout: fc.oneof(fc.constant(1), fc.jsonValue()),
    daemonSocket: fc.oneof(fc.constant("/nowhere/x"), fc.string(), fc.integer()),
    x: fc.jsonValue(),
  },
  { requiredKeys: ["daemonWait", "daemonSocket"] },
);
const stdin = fc.oneof(
  fc.uint8Array({ maxLength: 2000 }),
  keys.map((value) => Buffer.from(JSON.stringify(value))),
  // A valid configuration with a few bytes changed.
  fc
    .tuple(keys, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }))
    .map(([value, changes]) => {
      const bytes = Buffer.from(JSON.stringify(value));
      for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
      return bytes.includes("daemonSocket") && bytes.includes("daemonWait")
        ? bytes
        : bytes.subarray(1);
    }),
);

fuzz(
  "the stub, any stdin",
  fc.asyncProperty(verb, stdin, async (CNI_COMMAND, bytes) => {
    check(await runStub({ command, env: { CNI_COMMAND, ...identity }, stdin: bytes }));
  }),
);

const head = fc
  .tuple(
    fc.constantFrom("HTTP/1.1", "HTTP/1.0", "HTTP/2", "ICY"),
    fc.nat(999),
    fc.array(
      fc.tuple(
        fc.constantFrom("Content-Length", "content-length", "Transfer-Encoding", "X", ""),
        fc.oneof(fc.nat(40).map(String), fc.string({ maxLength: 20 })),
      ),
      { maxLength: 4 },
    ),
  )
  .map(([version, status, fields]) => {
    const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`);
    return Buffer.from(`${version} ${status} X\r\n${lines.join("")}\r\n`);
  });
const body = fc.oneof(
  fc.uint8Array({ maxLength: 60 }),
  fc.jsonValue().map((value) => Buffer.from(JSON.stringify(value))),
);
const pieces = fc.oneof(
  fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 4 }),
  fc.tuple(head, body),
  // A well-formed answer, cut anywhere.
  fc.tuple(fc.constantFrom(200, 400, 500), body, fc.nat(120)).map(([status, bytes, at]) => {
    const start = `HTTP/1.1 ${status} X\r\nContent-Length: ${bytes.length}\r\n\r\n`;
    const whole = Buffer.concat([Buffer.from(start), bytes]);
    return [whole.subarray(0, at), whole.subarray(at)].filter((piece) => piece.length > 0);
  }),
);

fuzz(
  "the stub, any answer",
  fc.asyncProperty(pieces, async (bytes) => {
    reply = bytes;
    check(await runStub({ command, env: { CNI_COMMAND: "ADD", ...identity }, stdin: config() }));
  }),
);
