import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { type Log, openLog } from "../../../lib/base/log.ts";
import { DelegateCgroups } from "../../../lib/cni/delegate-cgroup.ts";

const name = `podnet-test-${process.pid}`;
const quiet = openLog("silent");

function writable(root: string): boolean {
  try {
    accessSync(join(root, "cgroup.procs"), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** The node's hierarchies: v1 memory, and v2 alone or beside it. */
const roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].filter(
  (root) => writable(root) || writable(join(root, "memory")),
);
const skip = roots.length === 0 ? "no cgroup hierarchy is writable here" : false;
if (skip && process.env["CI"]) throw new Error(skip);

function runsIn(procs: string): number {
  const child = spawn("sleep", ["60"], { stdio: "ignore" });
  assert.ok(child.pid !== undefined);
  child.unref();
  writeFileSync(procs, `${child.pid}`);
  return child.pid;
}

const isGone = (pid: number) => {
  try {
    return / [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return true;
  }
};

function logTo(lines: string[]): Log {
  return openLog("warn", { write: (line: string) => void lines.push(line) });
}

for (const root of roots) {
  test(`delegate-cgroup: a call's cgroup below ${root} takes a process, and ends it when the call is over`, async () => {
    const cgroups = await DelegateCgroups.open({ root, name, log: quiet });
    assert.equal(cgroups.available, true);
    let pid = 0;
    let procs = "";
    {
      await using cgroup = await cgroups.create("c1/eth0 bridge");
      assert.ok(cgroup !== undefined);
      procs = cgroup.procs;
      pid = runsIn(procs);
      assert.equal(readFileSync(procs, "utf8"), `${pid}\n`);
    }
    assert.equal(existsSync(dirname(procs)), false);
    assert.ok(isGone(pid));
    await cgroups.close();
    assert.equal(existsSync(dirname(dirname(procs))), false);
  });

  test(`delegate-cgroup: a daemon that starts again below ${root} ends what the last one left, and nobody else's`, async () => {
    const old = await DelegateCgroups.open({ root, name, log: quiet });
    const other = await DelegateCgroups.open({ root, name: `${name}-other`, log: quiet });
    const [left, theirs] = [await old.create("left"), await other.create("theirs")];
    assert.ok(left !== undefined && theirs !== undefined);
    const pids = [runsIn(left.procs), runsIn(theirs.procs)] as const;
    const next = await DelegateCgroups.open({ root, name, log: quiet });
    assert.deepEqual(pids.map(isGone), [true, false]);
    assert.equal(existsSync(left.procs), false);
    await other.close();
    await next.close();
    assert.ok(isGone(pids[1]));
  });
}

test("delegate-cgroup: two calls of one name have two cgroups", { skip }, async () => {
  const cgroups = await DelegateCgroups.open({ name, log: quiet });
  const made = [await cgroups.create("same"), await cgroups.create("same")];
  assert.equal(new Set(made.map((cgroup) => cgroup?.procs)).size, 2);
  await cgroups.close();
});

test("delegate-cgroup: where there are no cgroups it says so once, makes nothing and gives none", async () => {
  const root = mkdtempSync(join(tmpdir(), "podnet-cgroup-"));
  try {
    mkdirSync(join(root, "memory"));
    const lines: string[] = [];
    const cgroups = await DelegateCgroups.open({ root, name, log: logTo(lines) });
    assert.equal(cgroups.available, false);
    assert.deepEqual(
      [await cgroups.create("a"), await cgroups.create("b")],
      [undefined, undefined],
    );
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? "", /delegates run in the daemon's own cgroup/);
    assert.deepEqual(readdirSync(join(root, "memory")), []);
    await cgroups.close();
  } finally {
    rmSync(root, { recursive: true });
  }
});
