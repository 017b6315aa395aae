// podnet --run-delegate: the way from podnetd to a delegate's executable.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import {
  closeSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { buildStub, runStub } from "../helpers/stub.ts";

const [stub = ""] = buildStub("x64");
const folder = mkdtempSync(join(tmpdir(), "podnet-delegate-"));
after(() => rmSync(folder, { recursive: true }));

function script(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/bash\n${text}\n`, { mode: 0o755 });
  return path;
}

function start(cgroup: string, mntns: string, program: string) {
  const args = ["--run-delegate", "--cgroup", cgroup, "--mntns", mntns, "--", program];
  return runStub({
    command: [stub],
    args,
    env: { PATH: process.env["PATH"], A: "ö=1" },
    stdin: "in",
  });
}

/** The folder of a cgroup hierarchy that takes processes: the unified one, else any of version 1. */
function cgroupRoot(): { path: string; line: (name: string) => RegExp } {
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  const entries = mounts.map((line) => line.split(" "));
  const found =
    entries.find(([, , type]) => type === "cgroup2") ??
    entries.find(([, , type, options]) => type === "cgroup" && options?.includes("pids"));
  assert.ok(found?.[1], "no cgroup file system is mounted");
  return { path: found[1], line: (name) => new RegExp(`:.*/${name}$`, "m") };
}

test("a delegate gets arguments, environment, stdin and exit code as the protocol wants them", async () => {
  const program = script("echo", 'echo "$0 $# $A"; cat; echo err >&2; exit 7');
  const answer = await start("-", "-", program);
  assert.equal(answer.code, 7);
  assert.equal(answer.stdout.toString(), `${program} 0 ö=1\nin`);
  assert.equal(answer.stderr, "err\n");
});

test("a delegate runs in the cgroup that was named", async () => {
  const root = cgroupRoot();
  const name = `podnet-test-${process.pid}`;
  const cgroup = join(root.path, name);
  mkdirSync(cgroup);
  try {
    const program = script("cgroup", "cat /proc/self/cgroup");
    const answer = await start(join(cgroup, "cgroup.procs"), "-", program);
    assert.equal(answer.code, 0, answer.stderr);
    assert.match(answer.stdout.toString(), root.line(name));
  } finally {
    rmdirSync(cgroup);
  }
});

test("a delegate runs in the mount namespace that was named, and is found there", async () => {
  const other = join(folder, "other");
  mkdirSync(other);
  const inside = `mount -t tmpfs none ${other} && printf '#!/bin/sh\\nreadlink /proc/self/ns/mnt; pwd' >${other}/run && chmod 755 ${other}/run && echo ready && exec cat`;
  const holder = spawn("unshare", ["-m", "--propagation", "private", "sh", "-c", inside]);
  try {
    await new Promise<void>((done, broken) => {
      holder.stdout.once("data", () => done());
      holder.once("exit", (code) => broken(new Error(`unshare: exit ${code}`)));
    });
    const namespace = `/proc/${holder.pid}/ns/mnt`;
    const answer = await start("-", namespace, join(other, "run"));
    assert.equal(answer.code, 0, answer.stderr);
    assert.equal(answer.stdout.toString(), `${readlinkSync(namespace)}\n/\n`);
    assert.notEqual(readlinkSync(namespace), readlinkSync("/proc/self/ns/mnt"));
  } finally {
    holder.stdin.end();
  }
});

test("a delegate leads a session of its own and inherits no signal state", async () => {
  // Not a shell: that would have signal state of its own.
  const program = join(folder, "status");
  const line = "#!/usr/bin/env -S cat /proc/self/stat /proc/self/status";
  writeFileSync(program, line, { mode: 0o755 });
  // Ignored signals survive an exec: that is what Node leaves behind for SIGPIPE.
  const command = ["/bin/bash", "-c", 'trap "" PIPE USR1; exec "$0" "$@"', stub];
  const args = ["--run-delegate", "--cgroup", "-", "--mntns", "-", "--", program];
  const answer = await runStub({ command, args });
  const text = answer.stdout.toString();
  const [pid, , , , group, session] = text.split(" ");
  assert.equal(group, pid);
  assert.equal(session, pid);
  // The C library keeps signals 32 and 33 for itself: a parent that used posix_spawn (make does) leaves them ignored.
  const ignored = BigInt(`0x${/SigIgn:\t([0-9a-f]+)/.exec(text)?.[1]}`);
  assert.equal(ignored & ~0x1_8000_0000n, 0n);
  assert.match(text, /SigBlk:\t0{16}\n/);
});

test("a delegate that is just being written is waited for", async () => {
  const program = join(folder, "busy");
  copyFileSync("/bin/true", program);
  const descriptor = openSync(program, "r+");
  const pending = start("-", "-", program);
  await sleep(300);
  closeSync(descriptor);
  const answer = await pending;
  assert.equal(answer.code, 0, answer.stderr);
  assert.ok(answer.ms >= 250, `${answer.ms} ms: it was not busy`);
});

test("a step that fails ends with 126 and one line that names it", async () => {
  const program = script("never", "echo started");
  const file = join(folder, "file");
  writeFileSync(file, "");
  const table: readonly (readonly [string, string, string, RegExp])[] = [
    [join(folder, "no"), "-", program, /open cgroup ".*\/no": No such file/],
    ["/dev/full", "-", program, /enter cgroup "\/dev\/full": No space left/],
    ["-", join(folder, "no"), program, /open mount namespace ".*\/no": No such file/],
    ["-", file, program, /enter mount namespace ".*\/file": Invalid argument/],
    ["-", "-", join(folder, "no"), /execute ".*\/no": No such file/],
    ["-", "-", file, /execute ".*\/file": Permission denied/],
    ["-", "-", "never", /must be an absolute path.* "never"/],
  ];
  for (const [cgroup, mntns, name, says] of table) {
    const answer = await start(cgroup, mntns, name);
    assert.equal(answer.code, 126, String(says));
    assert.equal(answer.stdout.toString(), "");
    assert.match(answer.stderr, /^podnet: run delegate: [^\n]*\n$/);
    assert.match(answer.stderr, says);
  }
});

test("a command line that is wrong ends with 126 and the usage", async () => {
  for (const args of [[], ["--cgroup"], ["--cgroup", "-", "--mntns", "-", "/bin/true"]]) {
    const answer = await runStub({ command: [stub], args: ["--run-delegate", ...args] });
    assert.equal(answer.code, 126);
    assert.match(answer.stderr, /usage: podnet --run-delegate --cgroup/);
  }
});
