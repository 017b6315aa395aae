import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab, runCommand } from "../../helpers/lab.ts";
import { NodeFixture, type Sandbox } from "../../helpers/node-fixture.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";
import { kernelState, LeakCheck } from "../../helpers/state.ts";
import { Steered } from "../../helpers/steered.ts";

// What a pod held is still owed when another pod with its name (another UID, another sandbox) is there already: the first one's is given
// back whatever happened meanwhile, and nothing of the second one's is touched.

/** What the first pod of a name has; a test decides when the executable "steered" gives back. */
const selection = ["blue", "dual", "steered"];
/** The same and a device of the node, which the pod keeps for as long as an executable that comes before it does not give back. */
const withDevice = [...selection, "lent"];
/** What the second pod has. */
const few = ["blue", "dual"];

let node: NodeFixture;
let tools: Lab;
let steered: Steered;
let clean: LeakCheck;
let pods = 0;
let older: Pod;
let newer: Pod;

interface Pod extends Sandbox {
  readonly args: string;
}

before(async () => {
  tools = new Lab();
  steered = new Steered(tools);
  const lent = { plugins: [{ type: "host-device", device: "dev0" }, { type: "steered" }] };
  node = await NodeFixture.start({
    binDirs: [steered.dir],
    networks: {
      steered: podNetwork("steered", { type: "steered" }),
      lent: podNetwork("lent", lent),
    },
  });
  const far = tools.pod().name;
  node.place.run("ip", "link", "add", "dev0", "type", "veth", "peer", "far0", "netns", far);
  // Bridges stay once they are there.
  const first = pod();
  await must("ADD", first, { networks: withDevice });
  await must("DEL", first);
  node.lab.remove(first.place);
  clean = new LeakCheck([node.place]);
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});
beforeEach(() => {
  older = pod();
  newer = { ...pod(), args: older.args.replace(/UID=.*/, `UID=${older.id}-second`) };
});

/** A sandbox of a pod of its own, named as its container. */
function pod(): Pod {
  pods += 1;
  const sandbox = node.sandbox(`box-${pods}`);
  const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=web-${pods};K8S_POD_UID=uid-${pods}`;
  return { ...sandbox, args };
}

const call = (verb: string, { args, ...sandbox }: Pod, more: object = {}) =>
  node.run(verb, sandbox, { args, ...more });
const must = (verb: string, { args, ...sandbox }: Pod, more: object = {}) =>
  node.must(verb, sandbox, { args, ...more });

/** What a runtime passes when it has taken the namespace away before. */
const withoutNetns = { netns: "" };

/** Everything that belongs to a pod: what is in its namespace, the node's ends of its links, its addresses, its record byte for byte. */
function belongings({ id, place }: Pod): object {
  const inside = kernelState(place);
  const peers = new Set(inside.links.map((link) => link["link_index"]));
  const ends = kernelState(node.place).links.filter(({ ifindex }) => peers.has(ifindex));
  const record = readFileSync(join(node.daemon.stateDir, "records", `${id}@eth0.json`), "utf8");
  return { inside, ends, held: addressesOf(id), record };
}

/** host-local's entries of a container, of every network. */
function addressesOf(id: string): string[] {
  return readdirSync(node.addresses, { recursive: true, encoding: "utf8" })
    .filter((path) => /\/[\da-f][\da-f.:]+$/.test(path))
    .filter((path) => readFileSync(join(node.addresses, path), "utf8").startsWith(`${id}\r\n`))
    .toSorted();
}

/** The second pod with the first one's name has what it asked for, and it is worth a comparison. */
async function attachNewer(): Promise<object> {
  await must("ADD", newer, { networks: few });
  const has = belongings(newer) as { ends: unknown[]; held: unknown[] };
  assert.deepEqual([has.ends.length, has.held.length], [2, 3]);
  return has;
}

/** What `podnetctl ls --pending` says is owed: container, network, state and why. */
async function owed(): Promise<string[]> {
  const args = ["--socket", node.daemon.socket, "ls", "--pending", "-o", "json"];
  const { status, stdout, stderr } = await podnetctl(node.place, args);
  assert.equal(status, 0, stderr);
  const rows = JSON.parse(stdout) as Record<string, string>[];
  return rows.map(({ containerId, network, state, fault }) =>
    [containerId, network, state, fault].join(" "),
  );
}

/** A metric's value as the daemon tells it. */
function metric(name: string): number {
  const url = "http://podnetd/metrics";
  const text = runCommand(["curl", "-s", "--unix-socket", node.daemon.socket, url]);
  const line = text.split("\n").find((one) => one.startsWith(`${name} `));
  return Number(line?.slice(name.length) ?? 0);
}

const failedTries = (): number => metric('podnet_detach_retries_total{outcome="failed"}');

/** Nothing of the older pod is left anywhere; the newer one's is as it was, works, and can be deleted. */
async function assertSettled(has: object): Promise<void> {
  assert.deepEqual(belongings(newer), has, "what belongs to the second pod");
  assert.deepEqual(addressesOf(older.id), []);
  assert.deepEqual(node.records(), [`${newer.id}@eth0.json`]);
  node.place.run("ip", "link", "show", "dev0");
  await must("CHECK", newer);
  await must("DEL", newer);
  for (const { place } of [older, newer]) node.lab.remove(place);
  clean.assertClean();
}

async function eventually(what: string, holds: () => boolean): Promise<void> {
  for (const until = Date.now() + 60_000; !holds(); await sleep(50))
    if (Date.now() > until) assert.fail(`not within a minute: ${what}\n${node.daemon.log}`);
}

/** The device is still the older pod's: whoever asks for it is told whose it is, and gets nothing else either. */
async function assertDeviceRefused(): Promise<void> {
  const third = pod();
  const { status, stdout, json } = await call("ADD", third, { networks: ["blue", "lent"] });
  assert.equal(status, 1, stdout);
  assert.match(json.msg, new RegExp(`"lent".*"?dev0"?.*${older.id}`));
  assert.deepEqual(addressesOf(third.id), []);
  node.lab.remove(third.place);
}

test("a DEL that met no daemon is done when the runtime comes again, without the namespace and beside a second pod of the name", async () => {
  await must("ADD", older, { networks: selection });
  await node.daemon.kill();
  const unheard = await call("DEL", older, { config: { daemonWait: 1 } });
  assert.deepEqual([unheard.status, unheard.json?.code], [1, 11], unheard.stdout);
  node.lab.remove(older.place);
  const attached = attachNewer();
  await node.daemon.restart();
  const has = await attached;
  await must("CHECK", newer);
  assert.ok(addressesOf(older.id).length > 0, "nobody has asked for them back yet");
  await must("DEL", older, withoutNetns);
  await assertSettled(has);
});

test("without any further DEL the leftovers of a pod are known, and podnetctl gc frees them and nothing of the second pod", async () => {
  await must("ADD", older, { networks: selection });
  await node.daemon.kill();
  node.lab.remove(older.place);
  await node.daemon.restart();
  const has = await attachNewer();
  const { stdout } = await podnetctl(node.place, ["--socket", node.daemon.socket, "gc"]);
  for (const network of selection)
    assert.match(stdout, new RegExp(`^freed ${older.id} ${network} `, "m"));
  assert.doesNotMatch(stdout, new RegExp(newer.id));
  await assertSettled(has);
});

test("a DEL that is still owed is shown and tried on while a second pod of the name runs, over a restart too, and then is over", async () => {
  await must("ADD", older, { networks: withDevice });
  steered.fail(`DEL-${older.id}`);
  const { status, json, stdout } = await call("DEL", older);
  assert.deepEqual([status, json?.code], [1, 11], stdout);
  const has = await attachNewer();
  await assertDeviceRefused();
  const fault = /"(steered|lent)" \(net\d\).*told to fail/;
  for (const life of ["the first", "the next"]) {
    const tries = failedTries();
    await eventually(`${life} daemon tries it twice`, () => failedTries() >= tries + 2);
    assert.equal(metric("podnet_pending_detaches"), 1, life);
    assert.ok(metric("podnet_oldest_pending_seconds") > 0, life);
    const rows = await owed();
    assert.equal(rows.length, withDevice.length, life);
    for (const row of rows) {
      assert.ok(row.startsWith(`${older.id} `) && row.includes(" deleting "), row);
      assert.match(row, fault);
    }
    assert.deepEqual(belongings(newer), has, life);
    if (life === "the next") break;
    await node.daemon.kill();
    await node.daemon.restart();
  }
  steered.fail(`DEL-${older.id}`, false);
  await eventually("given back", () => metric("podnet_pending_detaches") === 0);
  assert.deepEqual(await owed(), []);
  assert.equal(metric("podnet_oldest_pending_seconds"), 0);
  await assertSettled(has);
});
