import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { reportFigures } from "../helpers/faults-report.ts";
import { Random } from "../helpers/random.ts";
import { expect, rehearse } from "../helpers/scenario.ts";
import { attachmentKinds, kindNetworks, prepareNode } from "../helpers/scenario-kinds.ts";
import { ScenarioNode } from "../helpers/scenario-node.ts";

// A full disk, no memory for a netlink message, no process left: each effect of ADD and DEL fails once. FAULTS=all tries each, else every few.

const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const step = process.env["FAULTS"] === "all" ? 1 : 4;
const random = new Random(seed);

/** Settings that a kernel may refuse without harm; what the next look at the folder, or the next daemon, removes when removing it failed. */
const except = /sysctl |\.podnet-tmp$|^cgroup /;

let node: ScenarioNode;
before(async () => {
  node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
});
after(async () => {
  await node[Symbol.asyncDispose]();
});

for (const { name, networks } of attachmentKinds) {
  test(`${name}: an effect that fails is an error or does no harm, and leaves nothing (FAULTS_SEED=${seed})`, async () => {
    const { clean, attached, points } = await rehearse(node, networks);
    for (let point = 1 + random.below(step); point <= points.ADD; point += step) {
      const pod = node.pod();
      node.arm(node.passed + point, "error");
      const { status, json, stdout } = await node.call("ADD", pod, { networks });
      node.disarm();
      const when = `ADD whose effect ${point} failed (${stdout.slice(0, 300)})`;
      if (status === 0) await expect(node, attached, { pods: [pod], when, except });
      else assert.ok(json.code > 0 && json.msg.length > 0, when);
      await node.must("DEL", pod);
      await expect(node, clean, { pods: [pod], when, except });
      node.lab.remove(pod.place);
      reportFigures({ "effects that failed": 1 });
    }
    for (let point = 1 + random.below(step); point < points.DEL; point += step) {
      const pod = node.pod();
      await node.must("ADD", pod, { networks });
      node.arm(node.passed + point, "error");
      const first = await node.call("DEL", pod);
      node.disarm();
      const when = `DEL whose effect ${point} failed (${first.stdout.slice(0, 300)})`;
      if (first.status !== 0) assert.ok(first.json.code > 0, when);
      // What a DEL could not finish, the daemon finishes alone.
      await expect(node, clean, { pods: [pod], when, seconds: 15, except });
      await node.must("DEL", pod);
      node.lab.remove(pod.place);
      reportFigures({ "effects that failed": 1 });
    }
  });
}
