import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../../helpers/daemon.ts";
import { bridgeNetwork, NodeFixture, type Sandbox } from "../../helpers/node-fixture.ts";
import { openFiles } from "../../helpers/state.ts";

// Random sequences of what runtimes do, with the daemon killed at random moments inside operations. The model is small: a container is attached to
// a list of networks or to none. Whatever happened, the node must be what the model says, and nothing else.
// MODEL_SEED repeats a run, MODEL_STEPS makes it longer.

const seed = Number(process.env["MODEL_SEED"] ?? randomInt(2 ** 31));
const steps = Number(process.env["MODEL_STEPS"] ?? 60);
const networks = ["blue", "dual", "masked", "pair", "upper"] as const;
type Network = (typeof networks)[number];

/** Mulberry32: small, and the same everywhere. */
function randomNumbers(start: number): () => number {
  let state = start >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Container {
  sandbox: Sandbox;
  attached: readonly Network[];
}

const random = randomNumbers(seed);
const pick = <T>(items: readonly T[]): T => {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error("nothing to pick from");
  return item;
};

let node: NodeFixture;
let containers: Container[] = [];

before(async () => {
  node = await NodeFixture.start();
  node.daemon.writeNetwork(
    "masked",
    bridgeNetwork("masked", {
      dataDir: node.addresses,
      subnets: ["10.70.0.0/16"],
      extra: { ipMasq: true, isGateway: true },
    }),
  );
  // Types whose links are made otherwise: a pair without a bridge, and one that stands on a bridge of the node.
  const ipam = (subnet: string) => ({
    type: "host-local",
    dataDir: node.addresses,
    ranges: [[{ subnet }]],
  });
  node.place.run("ip", "link", "add", "br-low", "type", "bridge");
  node.place.run("ip", "link", "set", "br-low", "up");
  const pair = { type: "ptp", ipMasq: true, ipam: ipam("10.80.0.0/16") };
  const upper = { type: "macvlan", master: "br-low", ipam: ipam("10.81.0.0/16") };
  node.daemon.writeNetwork("pair", podNetwork("pair", pair));
  node.daemon.writeNetwork("upper", podNetwork("upper", upper));
  containers = Array.from({ length: 5 }, (_, index) => ({
    sandbox: node.sandbox(`model-${index}`),
    attached: [],
  }));
});
after(async () => {
  await node[Symbol.asyncDispose]();
});

function someNetworks(): Network[] {
  const chosen = networks.filter(() => random() < 0.6);
  return chosen.length === 0 ? [pick(networks)] : chosen;
}

/**
 * Ends the daemon while an operation is under way, by kill -9 or by SIGTERM, and starts it again, perhaps twice in a row; the stub waits and asks once
 * more, as for any restart.
 */
async function endedInside<T>(work: () => Promise<T>): Promise<T> {
  const running = work();
  running.catch(() => undefined);
  for (let ends = random() < 0.3 ? 2 : 1; ends > 0; ends -= 1) {
    await sleep(random() * 25);
    if (random() < 0.3) await node.daemon.stop();
    else await node.daemon.kill();
    await node.daemon.restart();
  }
  return await running;
}

async function attempt<T>(work: () => Promise<T>): Promise<T> {
  return random() < 0.35 ? await endedInside(work) : await work();
}

async function add(container: Container): Promise<string> {
  const asked = container.attached.length > 0 ? container.attached : someNetworks();
  await attempt(() => node.must("ADD", container.sandbox, { networks: asked }));
  container.attached = asked;
  return `ADD ${asked}`;
}

async function del(container: Container): Promise<string> {
  await attempt(() => node.must("DEL", container.sandbox));
  container.attached = [];
  return "DEL";
}

async function check(container: Container): Promise<string> {
  const { status } = await attempt(() => node.run("CHECK", container.sandbox));
  assert.equal(status === 0, container.attached.length > 0, `CHECK of ${container.sandbox.id}`);
  return "CHECK";
}

/** The runtime forgets a container: its namespace goes, and GC is told of the others. */
async function forget(container: Container): Promise<string> {
  node.lab.remove(container.sandbox.place);
  container.sandbox = node.sandbox(`${container.sandbox.id}x`);
  container.attached = [];
  await collect();
  return "namespace gone, GC";
}

async function collect(): Promise<string> {
  const listed = containers.filter(({ attached }) => attached.length > 0);
  const valid = listed.map(({ sandbox }) => ({ containerID: sandbox.id, ifname: "eth0" }));
  await node.must("GC", pick(containers).sandbox, {
    config: { "cni.dev/valid-attachments": valid },
  });
  return "GC";
}

/** The caller dies in the middle and its runtime comes back with a DEL, or with the same ADD again. */
async function abandoned(container: Container): Promise<string> {
  const asked = container.attached.length > 0 ? container.attached : someNetworks();
  const gone = node.run("ADD", container.sandbox, {
    networks: asked,
    seconds: Math.ceil(4 + random() * 20) / 1000,
  });
  await gone;
  if (random() < 0.5) return `abandoned ADD, ${await del(container)}`;
  await node.must("ADD", container.sandbox, { networks: asked });
  container.attached = asked;
  return `abandoned ADD, ADD ${asked}`;
}

const actions = [add, add, add, del, del, check, forget, collect, abandoned] as const;

/** The node against the model: interfaces of each sandbox, host ends, addresses, records. */
function compare(history: readonly string[]): void {
  const told = `seed ${seed}, after: ${history.slice(-6).join("; ")}`;
  for (const { sandbox, attached } of containers) {
    const links = JSON.parse(sandbox.place.run("ip", "-j", "link")) as { ifname: string }[];
    const names = links.map(({ ifname }) => ifname).filter((name) => name !== "lo");
    const expected = attached.map((_, index) => (index === 0 ? "eth0" : `net${index}`));
    assert.deepEqual(names.toSorted(), expected.toSorted(), `${sandbox.id}: ${told}`);
  }
  const hostLinks = JSON.parse(node.place.run("ip", "-j", "link")) as { ifname: string }[];
  const ends = hostLinks.filter(({ ifname }) => ifname.startsWith("veth"));
  const total = containers.reduce(
    (sum, { attached }) => sum + attached.filter((network) => network !== "upper").length,
    0,
  );
  assert.equal(ends.length, total, `host ends: ${told}`);
  for (const network of networks) {
    const users = containers.filter(({ attached }) => attached.includes(network)).length;
    const each = network === "dual" ? 2 : 1;
    assert.equal(node.held(network).length, users * each, `addresses of ${network}: ${told}`);
  }
  const records = containers.filter(({ attached }) => attached.length > 0).length;
  assert.equal(node.records().length, records, `records: ${told}`);
}

test(`random operations with kills leave the node as the model says (seed ${seed}, ${steps} steps)`, async () => {
  const history: string[] = [];
  for (let step = 0; step < steps; step += 1) {
    const container = pick(containers);
    const action = pick(actions);
    history.push(`${container.sandbox.id} ${action.name}`);
    try {
      history.push(`${container.sandbox.id} ${await action(container)}`);
    } catch (error) {
      throw new Error(`seed ${seed}, step ${step}: ${history.slice(-6).join("; ")}`, {
        cause: error,
      });
    }
    compare(history);
  }
  for (const container of containers) await del(container);
  compare([...history, "all deleted"]);
  const ruleset = node.place.run("nft", "list", "ruleset");
  assert.doesNotMatch(ruleset, /10\.(70|80)\.\d+\.\d+/, "a masquerade element is left");
  await sleep(200);
  const files = openFiles(node.daemon.pid);
  assert.ok(
    (files["net"] ?? 0) + (files["net:"] ?? 0) <= 2,
    `namespaces are held: ${JSON.stringify(files)}`,
  );
});
