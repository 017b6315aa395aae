import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { podNetwork } from "../helpers/daemon.ts";
import { reportFigures } from "../helpers/faults-report.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { NodeFixture } from "../helpers/node-fixture.ts";
import { RunningProgram } from "../helpers/process.ts";
import { type KernelState, kernelState } from "../helpers/state.ts";

// Others who change links and nftables without pause while pods come and go, and masters that flap or vanish.

const ports = [{ hostPort: 8081, containerPort: 80, protocol: "TCP" }];
const filtered = [{ name: "filtered", portMappings: ports }];
let node: NodeFixture;
let tools: Lab;
let clean: KernelState;
let pods = 0;

before(async () => {
  tools = new Lab();
  node = await NodeFixture.start({ networks: networks(tools.folder()) });
  node.place.run("ip", "link", "add", "low", "type", "bridge");
  node.place.run("ip", "link", "set", "low", "up");
  // Bridges and tables stay once they are there.
  await cycle(["blue", "dual", "upper", ...filtered]);
  clean = kernelState(node.place);
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

function networks(dataDir: string): Record<string, object> {
  const at = (subnet: string) => ({ type: "host-local", dataDir, ranges: [[{ subnet }]] });
  const bridge = {
    type: "bridge",
    bridge: "br-filtered",
    isGateway: true,
    ipMasq: true,
    macspoofchk: true,
    ipam: at("10.51.0.0/16"),
  };
  const portmap = { type: "portmap", snat: true, capabilities: { portMappings: true } };
  const vanishing = { type: "macvlan", master: "gone0", ipam: at("10.53.0.0/16") };
  return {
    filtered: podNetwork("filtered", { plugins: [bridge, portmap] }),
    upper: podNetwork("upper", { type: "macvlan", master: "low", ipam: at("10.52.0.0/16") }),
    vanishing: podNetwork("vanishing", vanishing),
  };
}

/** A shell's endless loop in a place. Ends with `stop`. */
function loop(place: Place, body: string): RunningProgram {
  return new RunningProgram("loop", place, [
    "sh",
    "-c",
    `while :; do ${body}; done >/dev/null 2>&1`,
  ]);
}

/** A pod comes, is looked at and goes. */
async function cycle(selection: readonly unknown[]): Promise<void> {
  pods += 1;
  const sandbox = node.sandbox(`pod-${pods}`);
  const options = { networks: selection };
  const prevResult = await node.must("ADD", sandbox, options);
  assert.equal(
    prevResult.interfaces.filter((one: { sandbox?: string }) => one.sandbox).length,
    selection.length,
  );
  await node.must("CHECK", sandbox, { ...options, config: { prevResult } });
  await node.must("DEL", sandbox, options);
  node.lab.remove(sandbox.place);
}

async function during(loops: readonly RunningProgram[], work: () => Promise<void>): Promise<void> {
  try {
    await work();
    for (const one of loops) one.mustRun();
  } finally {
    for (const one of loops) await one.stop();
  }
}

function assertNothingHeld(): void {
  assert.deepEqual(node.records(), []);
  for (const network of ["blue", "dual", "filtered", "upper", "vanishing"])
    assert.deepEqual(node.held(network), [], network);
  assert.deepEqual(kernelState(node.place), clean);
}

/** Batches of `ip` that make, flap and delete links. */
function churn(place: Place, name: string): RunningProgram {
  const lines = Array.from({ length: 20 }, (_, at) => [
    `link add ${name}${at} type veth peer ${name}p${at}`,
    `link set ${name}${at} up`,
    `link set ${name}${at} mtu 1400`,
    `link set ${name}${at} down`,
    `link del ${name}${at}`,
  ]);
  const file = join(tools.folder(), name);
  writeFileSync(file, `${lines.flat().join("\n")}\n`);
  return loop(place, `ip -force -batch ${file}; ip link del ${name}0`);
}

test("links made, flapped and deleted without pause in the node's namespace and another", async () => {
  const loops = [churn(node.place, "ca"), churn(tools.pod(), "cb")];
  await during(loops, async () => {
    for (let round = 0; round < 3; round += 1)
      await Promise.all([cycle(["blue", "dual"]), cycle(["upper"]), cycle(filtered)]);
  });
  node.place.run("sh", "-c", "for at in $(seq 0 19); do ip link del ca$at 2>/dev/null; done; true");
  assertNothingHeld();
  reportFigures({ "pods attached while others changed links or nftables": 9 });
});

test("nftables' transactions of others", async () => {
  const file = join(tools.folder(), "rules");
  writeFileSync(
    file,
    "table inet foreign { chain c { counter; counter; } }\ndelete table inet foreign\n",
  );
  const loops = [loop(node.place, `nft -f ${file}`), loop(node.place, `nft -f ${file}`)];
  await during(loops, async () => {
    for (let round = 0; round < 4; round += 1) await cycle(filtered);
  });
  assertNothingHeld();
  reportFigures({ "pods attached while others changed links or nftables": 4 });
});

test("a macvlan's master that goes down and up and changes its MTU", async () => {
  const flap =
    "for m in 1400 1500; do ip link set low down; ip link set low mtu $m; ip link set low up; done";
  await during([loop(node.place, flap)], async () => {
    for (let round = 0; round < 6; round += 1) {
      const sandbox = node.sandbox(`flapping-${round}`);
      const prevResult = await node.must("ADD", sandbox, { networks: ["upper"] });
      const checked = await node.run("CHECK", sandbox, {
        networks: ["upper"],
        config: { prevResult },
      });
      // The kernel lowers a macvlan's MTU with its master's and does not raise it again: CHECK may say that, and nothing else.
      if (checked.status !== 0) assert.match(checked.stdout, /its MTU is 1400, not 1500/);
      await node.must("DEL", sandbox, { networks: ["upper"] });
      node.lab.remove(sandbox.place);
    }
  });
  node.place.run("ip", "link", "set", "low", "up", "mtu", "1500");
  assertNothingHeld();
});

test("a macvlan's master that vanishes and comes again: a whole pod or an error that names the network, and DEL in any case", async () => {
  const vanish =
    "ip link add gone0 type bridge; ip link set gone0 up; sleep 0.02; ip link del gone0";
  const outcomes = { added: 0, refused: 0 };
  await during([loop(node.place, vanish)], async () => {
    for (let round = 0; round < 12; round += 1) {
      const sandbox = node.sandbox(`vanishing-${round}`);
      const answer = await node.run("ADD", sandbox, { networks: ["vanishing"] });
      if (answer.status === 0) outcomes.added += 1;
      else {
        outcomes.refused += 1;
        assert.match(answer.stdout, /vanishing/);
        assert.deepEqual(node.held("vanishing"), []);
      }
      await sleep(30);
      await node.must("DEL", sandbox, { networks: ["vanishing"] });
      node.lab.remove(sandbox.place);
    }
  });
  node.place.run("sh", "-c", "ip link del gone0 2>/dev/null; true");
  assert.equal(outcomes.added + outcomes.refused, 12);
  assertNothingHeld();
});

test("RTNL is held for long by one call of somebody else", async () => {
  // What stands on a link goes with it, in one call of the kernel that holds its lock of all links from begin to end.
  const far = tools.pod();
  const file = join(tools.folder(), "many");
  const uppers = Array.from({ length: 4000 }, (_, at) => `link add link base m${at} type macvlan`);
  const lines = ["link add base type bridge", "link set base up", ...uppers];
  writeFileSync(file, `${lines.join("\n")}\n`);
  far.run("ip", "-batch", file);
  const began = performance.now();
  const [program = "", ...args] = far.wrap(["ip", "link", "del", "base"]);
  const held = promisify(execFile)(program, args).then(() => performance.now() - began);
  await Promise.all([cycle(["blue", "dual"]), cycle(["upper"]), cycle(filtered)]);
  reportFigures({ "one call of somebody else that held RTNL, ms max": Math.round(await held) });
  assertNothingHeld();
});
