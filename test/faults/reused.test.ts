import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { podNetwork } from "../helpers/daemon.ts";
import { Lab, runCommand } from "../helpers/lab.ts";
import { NodeFixture, type Sandbox } from "../helpers/node-fixture.ts";
import { type KernelState, kernelState } from "../helpers/state.ts";

// A runtime's namespace path leads to another namespace than at the ADD: nothing of that one is touched, all of the first is given back.

let node: NodeFixture;
let tools: Lab;
let clean: KernelState;

before(async () => {
  tools = new Lab();
  const lent = podNetwork("lent", { type: "host-device", device: "dev0" });
  node = await NodeFixture.start({ networks: { lent } });
  node.place.run(
    "ip",
    "link",
    "add",
    "dev0",
    "type",
    "veth",
    "peer",
    "far0",
    "netns",
    tools.pod().name,
  );
  const first = node.sandbox("first");
  await node.must("ADD", first, { networks: ["blue"] });
  await node.must("DEL", first, { networks: ["blue"] });
  clean = kernelState(node.place);
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

/** Lets the sandbox's path lead to a namespace with interfaces of the same names, and gives the first one's new path. */
function replace({ place }: Sandbox): { kept: string; give(): void } {
  const kept = tools.pod().path;
  const other = tools.pod();
  for (const name of ["eth0", "net1", "dev0"])
    other.run("ip", "link", "add", name, "type", "veth", "peer", `${name}-far`);
  other.run("ip", "address", "add", "10.10.0.2/16", "dev", "eth0");
  runCommand(["mount", "--bind", place.path, kept]);
  runCommand(["umount", place.path]);
  runCommand(["mount", "--bind", other.path, place.path]);
  return { kept, give: () => runCommand(["umount", kept]) };
}

function assertNothingHeld(): void {
  assert.deepEqual(node.held("blue"), []);
  assert.deepEqual(node.records(), []);
  assert.deepEqual(kernelState(node.place), clean);
}

test("another namespace at the pod's path: CHECK says so, DEL frees the old one's and leaves the new one alone", async () => {
  const networks = { networks: ["blue"] };
  const sandbox = node.sandbox("reused");
  const prevResult = await node.must("ADD", sandbox, networks);
  const { kept, give } = replace(sandbox);
  try {
    const before = kernelState(sandbox.place);
    const checked = await node.run("CHECK", sandbox, { ...networks, config: { prevResult } });
    assert.notEqual(checked.status, 0, "CHECK of another namespace");
    await node.must("DEL", sandbox, networks);
    assert.deepEqual(kernelState(sandbox.place), before);
    const old = runCommand(["nsenter", `--net=${kept}`, "ip", "-o", "link"]);
    assert.doesNotMatch(old, /eth0/);
  } finally {
    give();
  }
  assertNothingHeld();
});

test("another namespace at the path, and the retry of an ADD that the runtime took for failed", async () => {
  const networks = { networks: ["blue"] };
  const sandbox = node.sandbox("again");
  await node.must("ADD", sandbox, networks);
  const { give } = replace(sandbox);
  try {
    // The new one has an eth0 of its own: refused, and left as it is.
    const before = kernelState(sandbox.place);
    const refused = await node.run("ADD", sandbox, networks);
    assert.notEqual(refused.status, 0, refused.stdout);
    assert.deepEqual(kernelState(sandbox.place), before);
    sandbox.place.run("ip", "link", "del", "eth0");
    await node.must("ADD", sandbox, networks);
    assert.match(sandbox.place.run("ip", "-o", "-4", "address", "show", "eth0"), /10\.10\./);
    assert.equal(node.held("blue").length, 1);
    await node.must("DEL", sandbox, networks);
  } finally {
    give();
  }
  assertNothingHeld();
});

test("another namespace at the path of a pod that has a device of the node: its addresses are free, the new one is left alone", async () => {
  const networks = { networks: ["blue", "lent"] };
  const sandbox = node.sandbox("loan");
  await node.must("ADD", sandbox, networks);
  const { give } = replace(sandbox);
  try {
    const before = kernelState(sandbox.place);
    const answer = await node.run("DEL", sandbox, networks);
    assert.deepEqual(kernelState(sandbox.place), before);
    assert.equal(answer.status, 0, answer.stdout);
  } finally {
    give();
  }
  assert.deepEqual(node.held("blue"), []);
  assert.deepEqual(node.records(), []);
});
