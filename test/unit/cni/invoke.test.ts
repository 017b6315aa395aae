import assert from "node:assert/strict";
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { CniError } from "../../../lib/cni/errors.ts";
import { type Invocation, invokePlugin } from "../../../lib/cni/invoke.ts";

const fixtures = resolve(import.meta.dirname, "../../fixtures/plugins");
let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-invoke-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

function invoke(type: string, more: Partial<Invocation> = {}) {
  const { env, ...rest } = more;
  return invokePlugin({
    type,
    verb: "ADD",
    cniPath: [join(dir, "none"), fixtures],
    config: { name: "n", cniVersion: "1.0.0", type },
    containerId: "c1",
    netnsPath: "/run/netns/x",
    ifName: "eth0",
    signal: new AbortController().signal,
    env: { FIXTURE_DIR: dir, ...env },
    ...rest,
  });
}

const kept = (name: string) => readFileSync(join(dir, name), "utf8");

async function failure(promise: Promise<unknown>): Promise<CniError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof CniError, `not a CniError: ${String(error)}`);
  return error;
}

/** Whether a process still runs; a zombie does not. */
function runs(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

async function waitFor(what: string, met: () => boolean): Promise<void> {
  for (let look = 0; look < 500; look++) {
    if (met()) return;
    await delay(10);
  }
  assert.fail(`waited in vain: ${what}`);
}

test("invoke: the plugin gets the protocol's environment, the rest of ours and the configuration", async () => {
  process.env["CNI_STRAY"] = "from outside";
  process.env["CNI_IFNAME"] = "wrong";
  process.env["FIXTURE_OURS"] = "kept";
  try {
    const args = new Map([
      ["K8S_POD_NAME", "web"],
      ["A", "b"],
    ]);
    const output = await invoke("record", {
      args,
      env: { FIXTURE_ANSWER: "{}", TRACEPARENT: "00-1" },
    });
    assert.deepEqual(output, { ...output, stdout: "{}", stderr: "a note for people" });
  } finally {
    for (const name of ["CNI_STRAY", "CNI_IFNAME", "FIXTURE_OURS"]) delete process.env[name];
  }
  const env = kept("env")
    .split("\n")
    .filter((line) => /^(CNI_|TRACE|PODNET|FIXTURE_OURS)/.test(line));
  assert.deepEqual(env.sort(), [
    "CNI_ARGS=K8S_POD_NAME=web;A=b",
    "CNI_COMMAND=ADD",
    "CNI_CONTAINERID=c1",
    "CNI_IFNAME=eth0",
    "CNI_NETNS=/run/netns/x",
    `CNI_PATH=${join(dir, "none")}:${fixtures}`,
    "FIXTURE_OURS=kept",
    "PODNET_DELEGATE=1",
    "TRACEPARENT=00-1",
  ]);
  assert.deepEqual(JSON.parse(kept("stdin")), { name: "n", cniVersion: "1.0.0", type: "record" });
});

test("invoke: calls without an attachment set no variables of one", async () => {
  await invoke("record", {
    verb: "GC",
    containerId: undefined,
    ifName: undefined,
    netnsPath: undefined,
  });
  assert.doesNotMatch(kept("env"), /CNI_(CONTAINERID|IFNAME|NETNS|ARGS)=/);
});

test("invoke: a missing plugin is named with the directories", async () => {
  const error = await failure(invoke("absent"));
  assert.equal(error.code, 50);
  assert.match(error.message, /plugin "absent".*none", ".*fixtures\/plugins"/);
});

test("invoke: a type that is a path is refused before anything is looked for", async () => {
  for (const type of ["../plugins/record", "/bin/true", ".."]) {
    assert.equal((await failure(invoke(type))).code, 7);
  }
});

test("invoke: what can't be executed is passed over, a folder too", async () => {
  mkdirSync(join(dir, "record"));
  writeFileSync(join(dir, "fails"), "#!/bin/sh\n");
  const cniPath = [dir, fixtures];
  await invoke("record", { cniPath });
  assert.equal((await failure(invoke("fails", { cniPath }))).code, 11);
});

test("invoke: an error object keeps code and details, with the type before its message", async () => {
  const error = await failure(invoke("fails"));
  assert.deepEqual(
    [error.code, error.message, error.details],
    [11, 'plugin "fails": no lease yet', "asked twice"],
  );
});

const ends: readonly [string, RegExp, string | undefined][] = [
  ["garbage", /plugin "garbage": ADD failed: panic: index out of range$/, "goroutine 1"],
  ["words", /plugin "words": ADD failed: cannot open \/dev\/null$/, "cannot open /dev/null"],
  ["silent", /plugin "silent": ADD failed: exit status 3 without a message$/, undefined],
  ["crash", /plugin "crash": ADD was killed by SIGKILL$/, undefined],
];
for (const [type, message, details] of ends) {
  test(`invoke: the end of "${type}" is told with code 107`, async () => {
    const error = await failure(invoke(type));
    assert.equal(error.code, 107);
    assert.match(error.message, message);
    assert.equal(error.details, details);
  });
}

test("invoke: a plugin that does not read its configuration is fine", async () => {
  const config = { name: "n", padding: "x".repeat(1 << 20) };
  assert.match((await failure(invoke("silent", { config }))).message, /exit status 3/);
});

test("invoke: a slow plugin is ended, and the limit named", async () => {
  const started = Date.now();
  const error = await failure(invoke("slow", { limits: { timeout: 100 } }));
  assert.equal(error.code, 107);
  assert.match(error.message, /plugin "slow": ADD gave no answer within 100 ms/);
  assert.ok(Date.now() - started < 20_000);
});

test("invoke: a plugin that ignores TERM is killed, and gone when the call returns", async () => {
  const controller = new AbortController();
  const call = failure(invoke("stubborn", { signal: controller.signal, limits: { grace: 100 } }));
  await waitFor("the plugin runs", () => existsSync(join(dir, "pid")) && kept("pid") !== "");
  controller.abort(new Error("enough"));
  assert.match((await call).message, /plugin "stubborn": ADD was ended: enough/);
  assert.equal(runs(Number(kept("pid"))), false);
});

test("invoke: a caller that gives up lets the plugin clean up first", async () => {
  const controller = new AbortController();
  const call = failure(invoke("polite", { signal: controller.signal }));
  await waitFor("the plugin runs", () => existsSync(join(dir, "pid")) && kept("pid") !== "");
  controller.abort(new Error("caller has gone"));
  assert.match((await call).message, /plugin "polite": ADD was ended: caller has gone/);
  assert.equal(kept("cleaned"), "cleaned\n");
});

test("invoke: a call that is over before it starts starts nothing", async () => {
  const signal = AbortSignal.abort(new Error("too late"));
  assert.match((await failure(invoke("record", { signal }))).message, /could not start: too late/);
  assert.equal(existsSync(join(dir, "env")), false);
});

test("invoke: a process that the plugin leaves in its group ends with the call", async () => {
  const started = Date.now();
  assert.equal((await invoke("grandchild")).stdout, '{"cniVersion":"1.0.0"}\n');
  assert.ok(Date.now() - started < 20_000, "waits for nobody who holds stdout");
  await waitFor("the grandchild is gone", () => !runs(Number(kept("pid"))));
});

test("invoke: output without end is cut off and named", async () => {
  const before = process.memoryUsage().rss;
  const error = await failure(invoke("greedy"));
  assert.match(error.message, /plugin "greedy": ADD wrote more than 1048576 bytes/);
  assert.ok(process.memoryUsage().rss - before < 100 << 20);
});

test("invoke: only the end of a long stderr is kept", async () => {
  writeFileSync(
    join(dir, "chatty"),
    "#!/bin/sh\nyes line | head -n 200000 >&2\necho last words >&2\nexit 1\n",
  );
  chmodSync(join(dir, "chatty"), 0o755);
  const error = await failure(invoke("chatty", { cniPath: [dir] }));
  assert.ok((error.details?.length ?? 0) <= 4096);
  assert.match(error.details ?? "", /last words$/);
});

test("invoke: an executable that is still being written is tried again", async () => {
  const path = join(dir, "busy");
  copyFileSync("/bin/true", path);
  chmodSync(path, 0o755);
  const writer = openSync(path, "r+");
  const call = invoke("busy", { cniPath: [dir] });
  await delay(100);
  closeSync(writer);
  assert.equal((await call).stdout, "");
});

test("invoke: an executable that stays busy fails in the end, with the reason", async () => {
  const path = join(dir, "busy");
  copyFileSync("/bin/true", path);
  chmodSync(path, 0o755);
  const writer = openSync(path, "r+");
  try {
    const error = await failure(invoke("busy", { cniPath: [dir] }));
    assert.equal(error.code, 107);
    assert.match(error.message, /could not start:.*ETXTBSY/);
  } finally {
    closeSync(writer);
  }
});

test("invoke: the helper's words for a busy executable count as well", async () => {
  const helper = { path: join(fixtures, "run-delegate-busy") };
  assert.equal((await invoke("record", { helper, env: { FIXTURE_ANSWER: "{}" } })).stdout, "{}");
  assert.equal(kept("tries").length, 6);
});

test("invoke: the helper is told cgroup, mount namespace and program", async () => {
  const helper = { path: join(fixtures, "run-delegate"), mntns: "/proc/1/ns/mnt" };
  await invoke("record", { helper });
  const program = join(fixtures, "record");
  assert.equal(
    kept("arguments"),
    `--run-delegate --cgroup - --mntns /proc/1/ns/mnt -- ${program}\n`,
  );
  assert.match(kept("env"), /CNI_COMMAND=ADD/);
});

test("invoke: a script whose interpreter is missing fails with the reason", async () => {
  writeFileSync(join(dir, "script"), "#!/no/such/interpreter\n");
  chmodSync(join(dir, "script"), 0o755);
  const error = await failure(invoke("script", { cniPath: [dir] }));
  assert.match(error.message, /plugin "script": ADD could not start: .*ENOENT/);
});

test("invoke: a NUL in a variable is an error, not a crash", async () => {
  assert.match(
    (await failure(invoke("record", { netnsPath: "/a\0b" }))).message,
    /could not start/,
  );
});
