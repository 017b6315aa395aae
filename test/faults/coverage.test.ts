import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Lab } from "../helpers/lab.ts";
import { InstallNode, installEpisodes } from "../helpers/scenario-install.ts";
import { attachmentKinds, kindNetworks, prepareNode } from "../helpers/scenario-kinds.ts";
import { ScenarioNode } from "../helpers/scenario-node.ts";
import { straced } from "../helpers/scenario-strace.ts";
import { uncovered } from "../helpers/scenario-trace.ts";

// What a kill between two effects means is tested only if there is a fault point between them. So: no effect without one.

/** Ends the daemon, and looks at all that it did. */
async function assertCovered(node: ScenarioNode, trace: string, least: number): Promise<void> {
  const threads = readdirSync(`/proc/${node.daemon.pid}/task`);
  await node.daemon.stop();
  const { points, effects, faults } = uncovered(readFileSync(trace, "utf8"), threads);
  assert.deepEqual(faults, []);
  assert.ok(
    points > least && effects > least * 0.8,
    `${points} points and ${effects} effects are too few`,
  );
}

test("every syscall of the daemon that changes something lies between two fault points", async () => {
  using lab = new Lab();
  const trace = join(lab.folder(), "trace");
  await using node = await ScenarioNode.start(kindNetworks, {
    prepare: prepareNode,
    wrap: straced(trace),
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
  await assertCovered(node, trace, 300);
});

test("every syscall that installs podnet, puts it back or takes it away lies between two fault points", async () => {
  using lab = new Lab();
  const trace = join(lab.folder(), "trace");
  await using node = await InstallNode.start(straced(trace));
  for (const { name, before, later } of installEpisodes) {
    if (later === undefined) continue;
    assert.ok(await node.live({ name, before, later }), name);
  }
  await assertCovered(node.scenario, trace, 20);
});
