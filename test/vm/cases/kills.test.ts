import assert from "node:assert/strict";
import { readdirSync, readlinkSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Place, runCommand } from "../../helpers/lab.ts";
import { Random } from "../../helpers/random.ts";
import { play, rehearse } from "../../helpers/scenario.ts";
import { aftermaths, type FaultVerb } from "../../helpers/scenario-fault.ts";
import { ScenarioNode } from "../../helpers/scenario-node.ts";

// kill -9 at a drawn step, and once more in what follows, for a pod that has one of each kind that the machine's own kernel lacks. The machine
// itself is the node: the kernel gives devices back to the first network namespace. All at once and once only (FAULTS_KILLS=n for more),
// since a start of the daemon takes seconds in here; test/faults/kills.test.ts is where every step is played.

const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const few = Number(process.env["FAULTS_KILLS"] ?? 1);
const pf = "eth1";
const device = `/sys/class/net/${pf}/device`;
const machine: Place = {
  name: "machine",
  path: "/proc/1/ns/net",
  wrap: (command) => [...command],
  run: (program, ...args) => runCommand([program, ...args]),
};

let node: ScenarioNode;
before(async () => {
  machine.run("ip", "link", "set", pf, "up");
  for (const count of ["0", "1"]) writeFileSync(`${device}/sriov_numvfs`, count);
  const vf = basename(readlinkSync(`${device}/virtfn0`));
  const hasLink = () => readdirSync(`/sys/bus/pci/devices/${vf}`).includes("net");
  for (let tries = 0; !hasLink(); tries += 1) {
    assert.ok(tries < 100, "the function has no link");
    await sleep(100);
  }
  node = await ScenarioNode.start(networksOf(vf), {
    ...{ place: machine, prepare, slowness: 5 },
    // The rules of VRFs come with the first one and stay.
    preparePod: ({ run }) => run("sh", "-ec", "ip link add v type vrf table 9; ip link del v"),
  });
});
after(async () => {
  await node?.[Symbol.asyncDispose]();
  for (const name of ["base0", "base1"]) machine.run("ip", "link", "del", name);
  writeFileSync(`${device}/sriov_numvfs`, "0");
});

function prepare({ run }: Place): void {
  for (const name of ["base0", "base1"]) {
    run("ip", "link", "add", name, "type", "dummy");
    run("ip", "link", "set", name, "up");
  }
}

function networksOf(vf: string): (dataDir: string) => Record<string, object> {
  return (dataDir) => {
    const ipam = (number: number) => ({
      type: "host-local",
      dataDir,
      ranges: [[{ subnet: `10.${number}.0.0/16` }]],
    });
    return {
      tagged: { type: "vlan", master: "base0", vlanId: 100, ipam: ipam(121) },
      sub: { type: "ipvlan", master: "base1", ipam: ipam(122) },
      routed: {
        plugins: [
          { type: "dummy", ipam: ipam(123) },
          { type: "vrf", vrfname: "red" },
        ],
      },
      function: {
        type: "sriov",
        deviceID: vf,
        vlan: 55,
        trust: "on",
        spoofchk: "off",
        max_tx_rate: 100,
        ipam: ipam(124),
      },
    };
  };
}

test(`vlan, ipvlan, dummy in a VRF and a VF: killed anywhere, nothing too many or too few (FAULTS_SEED=${seed})`, async () => {
  const networks = ["tagged", "sub", "routed", "function"];
  const expected = await rehearse(node, networks);
  const { points } = expected;
  const steps = (["ADD", "DEL", "GC"] as const).flatMap((verb: FaultVerb) =>
    Array.from({ length: points[verb] }, (_, at) => ({ verb, point: at + 1 })),
  );
  assert.ok(steps.length > 80, `${steps.length} points are too few`);
  const random = new Random(seed);
  for (let turn = 0; turn < few; turn += 1) {
    const { verb, point } = random.pick(steps);
    const aftermath = random.pick(aftermaths[verb]);
    const again = turn === 0 ? { again: 1 + random.below(points[verb]) } : {};
    await play(node, { networks, verb, point, aftermath, ...again }, expected);
  }
});
