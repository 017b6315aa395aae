import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Lab } from "../helpers/lab.ts";
import { attachmentKinds, kindNetworks, prepareNode } from "../helpers/scenario-kinds.ts";
import { ScenarioNode } from "../helpers/scenario-node.ts";
import { uncovered } from "../helpers/scenario-trace.ts";

// What a kill between two effects means is tested only if there is a fault point between them. So: no effect without one.

test("every syscall of the daemon that changes something lies between two fault points", async () => {
  using lab = new Lab();
  const trace = join(lab.folder(), "trace");
  const calls =
    "sendto,sendmsg,write,pwrite64,writev,openat,open,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat," +
    "symlink,symlinkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,utimensat,mount,umount2,execve,ioctl,setxattr,clone,clone3,fork,vfork,mknod,mknodat,fallocate";
  // -D: the daemon stays the child of who started it.
  const strace = ["strace", "-D", "-f", "-qq", "-y", "-s", "120", "-e", `trace=${calls}`];
  await using node = await ScenarioNode.start(kindNetworks, {
    prepare: prepareNode,
    wrap: (command) => [...strace, "-e", "signal=none", "-o", trace, ...command],
  });
  for (const { networks } of attachmentKinds) {
    const pod = node.pod();
    await node.must("ADD", pod, { networks });
    await node.must("CHECK", pod);
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
  }
  const last = node.pod();
  await node.must("ADD", last, { networks: ["bridge", "pair"] });
  await node.collect([], last);
  await node.must("STATUS", last);
  const threads = readdirSync(`/proc/${node.daemon.pid}/task`);
  await node.daemon.stop();
  const { points, effects, faults } = uncovered(readFileSync(trace, "utf8"), threads);
  assert.deepEqual(faults, []);
  assert.ok(points > 300 && effects > 250, `${points} points and ${effects} effects are too few`);
});
