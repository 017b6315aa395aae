import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NodeFixture, type Sandbox } from "../../helpers/node-fixture.ts";

let node: NodeFixture;
let pod: Sandbox;
let pid = 0;

before(async () => {
  node = await NodeFixture.start();
  pod = node.sandbox("victim");
  await node.must("ADD", pod, { networks: ["blue", "dual", "red"] });
  await node.must("DEL", pod);
  pid = node.daemon.pid;
});
after(async () => {
  await node[Symbol.asyncDispose]();
});

/** The daemon lives, is the same process, and still does its job. */
async function stillServes(): Promise<void> {
  assert.equal(node.daemon.pid, pid);
  process.kill(pid, 0);
  await node.must("ADD", pod, { networks: ["blue"] });
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
  assert.deepEqual(node.records(), []);
}

function open(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path: node.daemon.socket, allowHalfOpen: true });
    socket.once("connect", () => resolve(socket));
    socket.once("error", reject);
  });
}

/** Sends bytes as they are and resolves with all that comes back until the daemon closes (or 40 s pass). */
async function exchange(bytes: string | Uint8Array, end = true): Promise<string> {
  const socket = await open();
  let text = "";
  socket.on("data", (part: Buffer) => {
    text += part.toString("latin1");
  });
  socket.on("error", () => undefined);
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write(bytes);
  if (end) socket.end();
  const ended = new Promise<void>((resolve) => socket.once("end", () => resolve()));
  await Promise.race([closed, ended, sleep(40_000, undefined, { ref: false })]);
  socket.destroy();
  return text;
}

function post(body: string | Uint8Array, headers = ""): Uint8Array {
  const bytes = Buffer.from(body);
  const head = `POST /cni HTTP/1.1\r\nHost: d\r\nContent-Length: ${bytes.length}\r\nConnection: close\r\n${headers}\r\n`;
  return Buffer.concat([Buffer.from(head), bytes]);
}

const addLine = (env: object) =>
  JSON.stringify({
    protocol: 1,
    env: {
      CNI_COMMAND: "ADD",
      CNI_CONTAINERID: "victim",
      CNI_NETNS: pod.place.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: "/nowhere",
      ...env,
    },
  });
const config = '{"cniVersion":"1.1.0","name":"podnet","type":"podnet","networks":["blue"]}';

test("what is not HTTP, or not what the stub sends, gets an error and nothing else", async () => {
  const leaks = node.watch(pod);
  const requests: readonly (string | Uint8Array)[] = [
    "\0\0\0\0",
    "hello\r\n\r\n",
    Buffer.from(Array.from({ length: 4096 }, (_, index) => index % 256)),
    "POST /cni HTTP/1.1\r\nHost: d\r\nContent-Length: nonsense\r\n\r\n",
    "POST /cni HTTP/9.9\r\n\r\n",
    `GET ${"/x".repeat(40_000)} HTTP/1.1\r\nHost: d\r\n\r\n`,
    "GET //evil\\\\x HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n",
    post(""),
    post("{"),
    post("[]\n{}"),
    post("null\nnull"),
    post('{"protocol":2,"env":{}}\n{}'),
    post('{"protocol":1,"env":{"CNI_COMMAND":7}}\n{}'),
    post('{"protocol":1,"env":{"CNI_COMMAND":"EAT"}}\n{}'),
    post('{"protocol":1,"env":{"__proto__":{"x":"y"},"constructor":"z"}}\n{}'),
    post(`${addLine({})}\n`),
    post(
      `${addLine({})}\n{"cniVersion":"1.1.0","name":"podnet","networks":${"[".repeat(20_000)}${"]".repeat(20_000)}}`,
    ),
    post(`${addLine({ CNI_CONTAINERID: "../../etc" })}\n${config}`),
    post(`${addLine({ CNI_IFNAME: "a/b" })}\n${config}`),
    post(`${addLine({ CNI_IFNAME: "e\u0000h" })}\n${config}`),
    post(`${addLine({ CNI_NETNS: "/run/netns/\u0000x" })}\n${config}`),
    post(`${addLine({ CNI_NETNS: "../.." })}\n${config}`),
    post(`${addLine({ CNI_ARGS: "=;==;;" })}\n${config}`),
    post(`${addLine({ CNI_ARGS: "PODNET_NETWORKS=../x,@,blue@@" })}\n${config}`),
    post(Buffer.concat([Buffer.from(`${addLine({})}\n`), Buffer.from([0xff, 0xfe, 0x00, 0x80])])),
  ];
  for (const request of requests) {
    const answer = await exchange(request);
    const shown = Buffer.from(request).toString("latin1").slice(0, 80);
    assert.match(answer, /^HTTP\/1\.1 (4|5)\d\d /, shown);
  }
  leaks.assertClean();
  await stillServes();
});

test("a body of 100 MB is refused without being kept", async () => {
  const head = `POST /cni HTTP/1.1\r\nHost: d\r\nContent-Length: ${100 * 2 ** 20}\r\n\r\n`;
  const socket = await open();
  let text = "";
  socket.on("data", (part: Buffer) => {
    text += part.toString("latin1");
  });
  socket.on("error", () => undefined);
  socket.write(head);
  const block = Buffer.alloc(2 ** 20, "x");
  for (let sent = 0; sent < 100 && !socket.destroyed && text === ""; sent += 1) {
    socket.write(block);
    await sleep(1);
  }
  await sleep(300);
  socket.destroy();
  assert.match(text, /^HTTP\/1\.1 413 /);
  await stillServes();
});

test("slow, half-closed and silent callers hold nobody up", async () => {
  const silent = await Promise.all(Array.from({ length: 50 }, open));
  const slow = await open();
  slow.on("error", () => undefined);
  slow.write("POST /cni HTTP/1.1\r\n");
  const halfClosed = await exchange("POST /cni HTTP/1.1\r\nHost: d\r\nContent-Length: 10\r\n\r\n{");
  assert.match(halfClosed, /^(HTTP\/1\.1 400 .*)?/);
  await stillServes();
  for (const socket of [...silent, slow]) socket.destroy();
});

test("1,000 callers at once are all answered", async () => {
  const body = post(`${addLine({ CNI_COMMAND: "CHECK" })}\n${config}`);
  const answers = await Promise.all(Array.from({ length: 1000 }, () => exchange(body, false)));
  for (const answer of answers) assert.match(answer, /^HTTP\/1\.1 400 .*"code":3,/s);
  await stillServes();
});

test("without descriptors an ADD is to be tried again, and the next one works", async () => {
  const limit = (most: string) => spawnSync("prlimit", ["--pid", `${pid}`, `--nofile=${most}`]);
  const [, before = ""] =
    /^Max open files +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, "utf8")) ?? [];
  const used = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
  let free = 0;
  while (used.has(free)) free += 1;
  // The call itself takes the last one that is left; the namespace's would be the next.
  limit(`${free + 1}:`);
  try {
    const answer = await node.run("ADD", pod, { networks: ["blue"] });
    assert.match(JSON.stringify(answer.json), /"code":11,.*EMFILE/);
  } finally {
    limit(`${before}:`);
  }
  await stillServes();
});

test("another user can't open the socket", () => {
  const done = spawnSync(
    "setpriv",
    [
      "--reuid=65534",
      "--regid=65534",
      "--clear-groups",
      "perl",
      "-MIO::Socket::UNIX",
      "-e",
      `exit(IO::Socket::UNIX->new(Peer=>"${node.daemon.socket}") ? 0 : 7)`,
    ],
    { encoding: "utf8" },
  );
  assert.equal(done.status, 7, `${done.stdout}${done.stderr}`);
});

test("hostile annotations are refused with code 106 on the pod that has them, and no other", async () => {
  const leaks = node.watch(pod);
  const hostile = [
    "[null]",
    '[{"name":"blue","name":"red"}]',
    '[{"name":"../../etc/passwd"}]',
    '[{"name":"blu\\u0000e"}]',
    '[{"name":"blue\\n"}]',
    '[{"name":"blue","interfaceName":"eth0\\u202e"}]',
    '[{"name":"bl\u0443e"}]',
    '[{"name":"blue","interfaceName":".."}]',
    `[{"name":"blue","interfaceName":"${"x".repeat(35)}"}]`,
    "[".repeat(10_000),
    `[${'{"name":"blue"},'.repeat(50_000)}{"name":"blue"}]`,
    '"blue"',
    "{}",
    "[{}]",
    "[[]]",
    '[{"name":7}]',
    '[{"name":"blue","isDefaultGW":"yes"}]',
    '[{"name":"blue","mac":"zz"}]',
    '[{"name":"blue","ips":[]}]',
  ];
  for (const text of hostile) {
    const { status, json } = await node.run("ADD", pod, {
      config: {
        runtimeConfig: { "io.kubernetes.cri.pod-annotations": { "podnet.dev/networks": text } },
      },
    });
    assert.equal(status, 1, text.slice(0, 80));
    assert.equal(json.code, 106, `${text.slice(0, 80)}: ${json.msg}`);
    assert.ok(!json.msg.includes("\n"), "the message is one line");
  }
  leaks.assertClean();
  await stillServes();
});
