import assert from "node:assert/strict";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab, runCommand } from "../../helpers/lab.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";
import { Steered } from "../../helpers/steered.ts";

// Operations that meet: each test holds one in the middle and lets the other come.

let node: NodeFixture;
let tools: Lab;
let steered: Steered;

before(async () => {
  tools = new Lab();
  steered = new Steered(tools);
  node = await NodeFixture.start({
    binDirs: [steered.dir],
    networks: { steered: podNetwork("steered", { type: "steered" }) },
  });
  const ipam = {
    type: "host-local",
    dataDir: node.addresses,
    ranges: [[{ subnet: "10.90.0.0/16" }]],
  };
  node.daemon.writeNetwork(
    "collected",
    podNetwork("collected", {
      plugins: [{ type: "steered" }, { type: "bridge", bridge: "br-col", ipam }],
    }),
  );
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

test("GC that is under way when an ADD comes does not free what the ADD reserves", async () => {
  const pod = node.sandbox("newcomer");
  steered.hold("GC");
  const collecting = node.must("GC", pod, { config: { "cni.dev/valid-attachments": [] } });
  await steered.begun("GC");
  const adding = node.must("ADD", pod, { networks: ["collected"] });
  await sleep(700);
  steered.release("GC");
  await Promise.all([collecting, adding]);
  assert.equal(node.held("collected").length, 1);
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
});

test("GC and podnetctl gc that come while an ADD is under way leave it alone", async () => {
  const pod = node.sandbox("midway");
  steered.hold("ADD-midway");
  const adding = node.must("ADD", pod, { networks: ["blue", "steered"] });
  await steered.begun("ADD-midway");
  await node.must("GC", pod, { config: { "cni.dev/valid-attachments": [] } });
  runCommand(["dist/bin/podnetctl", "--socket", node.daemon.socket, "gc"]);
  steered.release("ADD-midway");
  await adding;
  assert.equal(node.held("blue").length, 1);
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
});

test("an ADD that comes while older DELs are retried is not taken for one of them", async () => {
  const pods = [node.sandbox("twin-a"), node.sandbox("twin-b")];
  for (const pod of pods) {
    await node.must("ADD", pod, { networks: ["blue", "steered"] });
    steered.fail(`DEL-${pod.id}`);
  }
  for (const pod of pods) assert.equal((await node.run("DEL", pod)).json.code, 11);
  await node.daemon.kill();
  for (const pod of pods) {
    steered.hold(`DEL-${pod.id}`);
    steered.fail(`DEL-${pod.id}`, false);
  }
  // Started anew, the daemon retries both, one after the other.
  await node.daemon.restart();
  const first = await Promise.race(
    pods.map((pod) => steered.begun(`DEL-${pod.id}`).then(() => pod)),
  );
  const back = pods.find((pod) => pod !== first);
  assert.ok(back);
  steered.release(`DEL-${back.id}`);
  await node.must("ADD", back, { networks: ["blue", "steered"] });
  steered.release(`DEL-${first.id}`);
  await eventually(
    "the other DEL",
    () => !node.records().some((name) => name.startsWith(first.id)),
  );
  await sleep(1500);
  await node.must("CHECK", back);
  await node.must("DEL", back);
  assert.deepEqual(node.held("blue"), []);
});

test("a DEL that comes while its ADD is under way ends after it and leaves nothing", async () => {
  const pod = node.sandbox("hasty");
  steered.hold("ADD-hasty");
  const adding = node.run("ADD", pod, { networks: ["blue", "steered"] });
  await steered.begun("ADD-hasty");
  const deleting = node.must("DEL", pod);
  await sleep(200);
  steered.release("ADD-hasty");
  await Promise.all([adding, deleting]);
  assert.deepEqual([node.held("blue"), node.records()], [[], []]);
  assert.throws(() => pod.place.run("ip", "link", "show", "eth0"));
});

test("a DEL that is repeated does not start the default network's plugins again", async () => {
  node.daemon.writeNetwork("default", podNetwork("default", { type: "steered" }));
  const pod = node.sandbox("repeated");
  await node.must("ADD", pod, { networks: ["default"] });
  await node.must("DEL", pod);
  steered.fail("DEL-repeated");
  await node.must("DEL", pod);
  assert.equal((await node.run("DEL", pod, { ifName: "eth7" })).json?.code, 11);
  rmSync(join(node.daemon.networksDir, "default.yaml"));
});

test("a new sandbox of a pod waits for the older one's ADD", async () => {
  const args = "K8S_POD_NAMESPACE=a;K8S_POD_NAME=web;K8S_POD_UID=u-1";
  const [older, newer] = [node.sandbox("older"), node.sandbox("newer")];
  steered.hold("ADD-older");
  const first = node.must("ADD", older, { networks: ["blue", "steered"], args });
  await steered.begun("ADD-older");
  let done = false;
  const second = node.must("ADD", newer, { networks: ["blue"], args }).then(() => {
    done = true;
  });
  await sleep(300);
  assert.equal(done, false);
  steered.release("ADD-older");
  await Promise.all([first, second]);
  for (const pod of [older, newer]) await node.must("DEL", pod, { args });
  assert.deepEqual(node.held("blue"), []);
});

test("an interface name that another call of the same container has is refused, and stays", async () => {
  const [pod, other] = [node.sandbox("shared"), node.sandbox("elsewhere")];
  const first = await node.must("ADD", pod, { networks: ["blue", "red"] });
  const twin = { id: pod.id, place: other.place };
  const refused = await node.run("ADD", twin, { networks: ["red"], ifName: "net1" });
  assert.equal(refused.json?.code, 4, refused.stdout);
  assert.match(refused.json.msg, /"net1".*eth0/);
  await node.must("DEL", twin, { ifName: "net1" });
  await node.must("CHECK", pod);
  assert.equal(node.held("red").length, 1);
  assert.deepEqual(await node.must("ADD", pod, { networks: ["blue", "red"] }), first);
  // Another name is no conflict.
  await node.must("ADD", twin, { networks: ["red"], ifName: "net9" });
  await node.must("DEL", twin, { ifName: "net9" });
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
  assert.deepEqual(node.held("red"), []);
});

test("a daemon that is stopped in the middle of an ADD undoes it and says that it is to be tried again", async () => {
  const pod = node.sandbox("stopped");
  steered.hold("ADD-stopped");
  const adding = node.run("ADD", pod, {
    networks: ["blue", "steered"],
    config: { daemonWait: 1 },
  });
  await steered.begun("ADD-stopped");
  await node.daemon.stop();
  const { json } = await adding;
  assert.equal(json?.code, 11, JSON.stringify(json));
  assert.match(json.msg, /"steered" \(net1\).*podnetd stops/);
  assert.deepEqual([node.held("blue"), node.records()], [[], []]);
  steered.release("ADD-stopped");
  await node.daemon.restart();
});

test("a daemon that is stopped while it retries a DEL ends at once and goes on after its start", async () => {
  const pod = node.sandbox("retried");
  await node.must("ADD", pod, { networks: ["blue", "steered"] });
  steered.fail("DEL-retried");
  assert.equal((await node.run("DEL", pod)).json.code, 11);
  steered.hold("DEL-retried");
  await steered.begun("DEL-retried");
  const started = Date.now();
  await node.daemon.stop();
  assert.ok(Date.now() - started < 8_000, `it took ${Date.now() - started} ms`);
  steered.fail("DEL-retried", false);
  steered.release("DEL-retried");
  await node.daemon.restart();
  await eventually("the retry", () => node.records().length === 0);
  assert.match(metrics(), /podnet_detach_retries_total\{outcome="done"\} 1\n/);
});

test("a record that can't be read keeps gc from freeing what it may stand for", async () => {
  const pod = node.sandbox("unread");
  await node.must("ADD", pod, { networks: ["blue"] });
  await node.daemon.stop();
  const file = join(node.daemon.stateDir, "records", "unread@eth0.json");
  writeFileSync(file, "garbage\n");
  await node.daemon.restart();
  assert.throws(
    () => runCommand(["dist/bin/podnetctl", "--socket", node.daemon.socket, "gc"]),
    /unread@eth0\.json\.unreadable" can't be read.*repair or remove it/,
  );
  assert.equal(node.held("blue").length, 1);
  rmSync(`${file}.unreadable`);
  const gc = () => runCommand(["dist/bin/podnetctl", "--socket", node.daemon.socket, "gc"]);
  // Without its record nobody knows the pod, but it is there and has the address.
  assert.match(gc(), /left address 10\.\S+ of network blue, container unread eth0: its veth "veth/);
  assert.equal(node.held("blue").length, 1);
  node.lab.remove(pod.place);
  await eventually(
    "the pod's end",
    () => !/^Nothing|^left/.test(gc()) || node.held("blue").length === 0,
  );
  assert.deepEqual(node.held("blue"), []);
  assert.equal(existsSync(file), false);
});

test("a socket that was removed is served anew", async () => {
  const pod = node.sandbox("unplugged");
  rmSync(node.daemon.socket);
  await node.must("ADD", pod, { networks: ["blue"] });
  await node.must("DEL", pod);
});

function metrics(): string {
  const { socket } = node.daemon;
  return runCommand(["curl", "-s", "--unix-socket", socket, "http://podnetd/metrics"]);
}

test("each metric has a HELP line, and what was done is counted", async () => {
  const text = metrics();
  assert.match(text, /podnet_operation_seconds_count\{verb="ADD",outcome="ok"\} [1-9]/);
  for (const line of text.split("\n")) {
    const name = /^(podnet_\w+?)(_bucket|_sum|_count)?[{ ]/.exec(line)?.[1];
    if (name !== undefined) assert.ok(text.includes(`# HELP ${name} `), name);
  }
});

async function eventually(what: string, holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 150; turn += 1) {
    if (holds()) return;
    await sleep(100);
  }
  assert.fail(`${what} did not come true within 15 s`);
}
