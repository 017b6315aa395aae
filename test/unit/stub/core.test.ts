import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { podnetVersion } from "../../../cmd/podnet/about.ts";
import { run } from "../../../cmd/podnet/core.ts";
import type { CniVerb } from "../../../lib/cni/types.ts";
import { FakeHost, hostFailure } from "../../helpers/fake-host.ts";

function host(verb: CniVerb | undefined, keys: object = {}): FakeHost {
  const fake = new FakeHost();
  if (verb !== undefined) fake.variables["CNI_COMMAND"] = verb;
  Object.assign(fake.variables, {
    CNI_CONTAINERID: "c1",
    CNI_NETNS: "/run/netns/x",
    CNI_IFNAME: "eth0",
    CNI_PATH: "/opt/cni/bin",
  });
  fake.stdin = JSON.stringify({ cniVersion: "1.1.0", name: "net", ...keys });
  return fake;
}

const answer = (status: number, body: string) =>
  `HTTP/1.1 ${status} X\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

async function failing(fake: FakeHost): Promise<{ code: number; msg: string; cniVersion: string }> {
  assert.equal(await run(fake), 1);
  assert.equal(fake.open, 0, "a connection was left open");
  return JSON.parse(fake.stdout);
}

test("the version is the package's", () => {
  assert.equal(podnetVersion, JSON.parse(readFileSync("package.json", "utf8")).version);
});

test("the daemon's success goes out as it came", async () => {
  const fake = host("ADD");
  fake.attempts = [{ pieces: [answer(200, '{ "odd" :  1}\n')] }];
  assert.equal(await run(fake), 0);
  assert.equal(fake.stdout, '{ "odd" :  1}\n');
  assert.equal(fake.open, 0);
});

test("the daemon's error goes out as it came, with exit code 1", async () => {
  const body = '{"code":100,  "msg":"no"}';
  const fake = host("ADD");
  fake.attempts = [{ pieces: [answer(500, body)] }];
  assert.equal(await run(fake), 1);
  assert.equal(fake.stdout, body);
});

test("an error that is not CNI's is wrapped", async () => {
  for (const body of ["Not Found", "", "[]", '{"code":"1","msg":"x"}', '{"code":1}']) {
    const fake = host("DEL");
    fake.attempts = [{ pieces: [answer(404, body)] }];
    const error = await failing(fake);
    assert.equal(error.code, 11, body);
    assert.match(error.msg, /HTTP status 404/);
  }
});

test("ADD, DEL and CHECK wait for the daemon until the wait is over", async () => {
  for (const verb of ["ADD", "DEL", "CHECK"] as const) {
    const fake = host(verb, { daemonWait: 3, daemonSocket: "/run/x.sock" });
    const error = await failing(fake);
    assert.equal(error.code, 11);
    assert.match(
      error.msg,
      /"\/run\/x\.sock": no such socket, waited 3 s: check that podnetd runs/,
    );
    assert.equal(fake.now(), 3000);
    assert.match(fake.stderr, /waiting up to 3 s/);
  }
});

test("DEL waits as long as it is told to", async () => {
  const fake = host("DEL", { daemonWait: 30, daemonWaitDel: 2 });
  assert.match((await failing(fake)).msg, /waited 2 s/);
  assert.equal(fake.now(), 2000);
});

test("STATUS and GC do not wait", async () => {
  for (const [verb, code] of [
    ["STATUS", 50],
    ["GC", 11],
  ] as const) {
    const fake = host(verb);
    fake.attempts = ["ECONNREFUSED"];
    const error = await failing(fake);
    assert.equal(error.code, code);
    assert.match(error.msg, /connection refused: check/);
    assert.equal(fake.now(), 0);
  }
});

test("a pause is an eighth of the time since the daemon was lost, and stays below a quarter of a second", async () => {
  const fake = host("ADD", { daemonWait: 5 });
  await run(fake);
  let waited = 0;
  for (const pause of fake.sleeps.slice(0, -1)) {
    assert.ok(Math.abs(pause - Math.max(10, Math.min(waited / 8, 250))) < 1e-6, `${pause}`);
    waited += pause;
  }
  assert.equal(fake.sleeps.at(-2), 250);
});

test("a lost connection is a daemon that restarts, whatever had arrived", async () => {
  const complete = answer(200, "ok");
  for (const lost of [{}, { failure: "ECONNRESET" }, { pieces: [complete.slice(0, -1)] }]) {
    const fake = host("ADD");
    fake.attempts = ["ENOENT", lost, "ECONNREFUSED", { pieces: [complete] }];
    assert.equal(await run(fake), 0);
    assert.equal(fake.stdout, "ok");
    assert.equal(fake.sent.length, 2);
    assert.equal(fake.sent[0], fake.sent[1]);
  }
});

test("the wait does not begin anew with each failure", async () => {
  const fake = host("ADD", { daemonWait: 2 });
  fake.attempts = [{}];
  assert.match((await failing(fake)).msg, /connection lost before the answer, waited 2 s/);
  assert.equal(fake.now(), 2000);
});

test("a full queue of a living daemon is waited for until the call's end", async () => {
  const fake = host("GC", { daemonWait: 0, daemonTimeout: 7 });
  fake.attempts = ["EAGAIN"];
  assert.match((await failing(fake)).msg, /too many callers/);
  assert.equal(fake.now(), 7000);
});

test("what waiting can't help fails at once", async () => {
  const hopeless: readonly (readonly [FakeHost["attempts"][number], RegExp])[] = [
    ["EACCES", /EACCES: check daemonSocket/],
    [{ pieces: ["garbage\r\n"] }, /bad answer: not HTTP: "garbage/],
    [{ failure: "ETIMEDOUT" }, /no answer within/],
  ];
  for (const [attempt, says] of hopeless) {
    const fake = host("ADD");
    fake.attempts = [attempt];
    const error = await failing(fake);
    assert.equal(error.code, 11);
    assert.match(error.msg, says);
    assert.equal(fake.now(), 0);
  }
});

test("errors carry the version that came in", async () => {
  const fake = host("ADD", { cniVersion: "0.3.1", name: "a/b" });
  assert.equal((await failing(fake)).cniVersion, "0.3.1");
  const early = host("ADD", { cniVersion: "0.4.0" });
  delete early.variables["CNI_IFNAME"];
  assert.equal((await failing(early)).cniVersion, "0.4.0");
  const unknown = host("ADD", { cniVersion: "7.0.0" });
  assert.equal((await failing(unknown)).cniVersion, "1.1.0");
});

test("stdin that can't be read is code 5", async () => {
  const fake = host("ADD");
  for (const [code, says] of [
    ["EBADF", /EBADF/],
    ["ETIMEDOUT", /did not end within 30 s/],
    ["EMSGSIZE", /longer than 4194304 bytes/],
  ] as const) {
    fake.stdin = hostFailure(code);
    fake.stdout = "";
    const error = await failing(fake);
    assert.equal(error.code, 5);
    assert.match(error.msg, says);
  }
});

test("VERSION echoes the version that came in, and needs none", async () => {
  const fake = host("VERSION", { cniVersion: "0.2.0" });
  assert.equal(await run(fake), 0);
  assert.equal(JSON.parse(fake.stdout).cniVersion, "0.2.0");
  for (const stdin of ["", "{", "{}", '{"cniVersion":5}', hostFailure("EBADF")]) {
    const other = host("VERSION");
    other.stdin = stdin;
    assert.equal(await run(other), 0);
    assert.equal(JSON.parse(other.stdout).cniVersion, "1.1.0");
  }
});

test("without a command a person is told what this is", async () => {
  const fake = host(undefined);
  assert.equal(await run(fake), 0);
  assert.match(fake.stderr, /CNI versions: 0\.1\.0, .*1\.1\.0/);
  assert.equal(fake.stdout, "");
});

test("arguments of a person are answered", async () => {
  for (const [argument, code] of [
    ["--version", 0],
    ["--help", 0],
    ["--wrong", 2],
    ["--run-delegate", 126],
  ] as const) {
    const fake = host(undefined);
    fake.args = [argument];
    assert.equal(await run(fake), code, argument);
    assert.notEqual(code === 0 ? fake.stdout : fake.stderr, "");
  }
});
