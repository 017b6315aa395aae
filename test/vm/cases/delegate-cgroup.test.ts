// podnet --run-delegate on a node as systemd sets it up: the one cgroup hierarchy, mounted with "nsdelegate".
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";

const folder = mkdtempSync(join(tmpdir(), "podnet-test-"));
const hierarchy = join(folder, "cgroup");

before(() => {
  mkdirSync(hierarchy);
  const mount = ["-t", "cgroup2", "-o", "nsdelegate", "cgroup2", hierarchy];
  const done = spawnSync("mount", mount, { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  for (const name of ["container", "delegate"]) mkdirSync(join(hierarchy, name));
  writeFileSync(join(folder, "plugin"), "#!/bin/sh\ncat /proc/self/cgroup\n", { mode: 0o755 });
});
after(() => {
  spawnSync("umount", [hierarchy]);
});

/** Starts a delegate as a daemon in a container does: in a cgroup of its own, which is the root of its cgroup namespace. */
function start(mntns: string) {
  const stub = resolve("dist/bin/podnet");
  const procs = (name: string) => join(hierarchy, name, "cgroup.procs");
  const command = `echo 0 >${procs("container")} && exec unshare --cgroup ${stub} --run-delegate --cgroup ${procs("delegate")} --mntns ${mntns} -- ${folder}/plugin`;
  return spawnSync("sh", ["-c", command], { encoding: "utf8" });
}

test("a delegate's cgroup can't be entered from a container's cgroup namespace", () => {
  const { status, stderr } = start("-");
  assert.equal(status, 126);
  assert.match(stderr, /enter cgroup ".*delegate\/cgroup.procs": No such file or directory/);
});

test("with the node's mount namespace a delegate enters the node's cgroup namespace, and its cgroup", () => {
  const { status, stdout, stderr } = start(`/proc/${process.pid}/ns/mnt`);
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^0::\/delegate$/m);
});
