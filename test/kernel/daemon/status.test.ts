import assert from "node:assert/strict";
import { renameSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab } from "../../helpers/lab.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";
import { Steered } from "../../helpers/steered.ts";

// A default network's executables are brought by its own agent, which at a boot may be late.

let node: NodeFixture;
let tools: Lab;
let steered: Steered;

before(async () => {
  tools = new Lab();
  steered = new Steered(tools);
  node = await NodeFixture.start({
    binDirs: [tools.folder()],
    networks: { default: podNetwork("default", { type: "steered" }) },
  });
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

/** The runtime's CNI_PATH, which the daemon's own folders follow. */
const path = (): object => ({ path: steered.dir });

test("STATUS and ADD name an executable of the default network that is not there yet, with code 50, and need no restart", async () => {
  const elsewhere = join(tools.folder(), "steered");
  renameSync(join(steered.dir, "steered"), elsewhere);
  const [pod, other] = [node.sandbox("early"), node.sandbox("secondary")];
  const missing = /find plugin "steered": no executable in "[^\n]*": install it there/;
  const status = await node.run("STATUS", pod, path());
  assert.equal(status.json?.code, 50, status.stdout);
  assert.match(status.json.msg, new RegExp(`^default network: ${missing.source}`));
  const refused = await node.run("ADD", pod, { networks: ["default", "blue"], ...path() });
  assert.equal(refused.json?.code, 50, refused.stdout);
  assert.match(
    refused.json.msg,
    new RegExp(`^attach network "default" \\(eth0\\): ${missing.source}`),
  );
  assert.deepEqual([node.held("blue"), node.records()], [[], []]);
  // A pod that does not want the default network is no worse for it.
  await node.must("ADD", other, { networks: ["blue"], ...path() });
  await node.must("DEL", other);
  renameSync(elsewhere, join(steered.dir, "steered"));
  await node.must("STATUS", pod, path());
  await node.must("ADD", pod, { networks: ["default", "blue"], ...path() });
  assert.equal(node.held("blue").length, 1);
  await node.must("DEL", pod);
});
