import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { test } from "node:test";
import { cleanSoon } from "../../helpers/attached.ts";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab } from "../../helpers/lab.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";

const lab = new Lab();
const stores = lab.folder();
const types: readonly object[][] = [
  [
    { type: "bridge", bridge: "br-many" },
    { type: "bandwidth", ingressRate: 1e8, ingressBurst: 1e7 },
  ],
  [{ type: "host-device", device: "lent0" }],
  [{ type: "ptp" }],
  [
    { type: "macvlan", master: "master0" },
    { type: "tuning", mtu: 1400 },
  ],
  [{ type: "tap" }],
  [{ type: "host-device", device: "lent1" }],
  [{ type: "macvlan", master: "master0" }],
];
const names = types.map((_, place) => `many${place}`);

function networkOf(place: number): object {
  const ranges = [[{ subnet: `10.${60 + place}.0.0/24` }]];
  const ipam = { type: "host-local", dataDir: stores, ranges };
  const plugins = (types[place] ?? []).map((plugin, at) =>
    at === 0 ? { ...plugin, ipam } : plugin,
  );
  return podNetwork(names[place] ?? "", { plugins });
}

test("networks of many types, attached side by side, answer in the order in which they were asked for, and go without a trace", async () => {
  const networks = Object.fromEntries(names.map((name, place) => [name, networkOf(place)]));
  await using node = await NodeFixture.start({ networks });
  const far = lab.pod();
  for (const name of ["lent0", "lent1", "master0"]) {
    node.place.run(
      "ip",
      "link",
      "add",
      name,
      "type",
      "veth",
      "peer",
      "name",
      name,
      "netns",
      far.name,
    );
    node.place.run("ip", "link", "set", name, "up");
    far.run("ip", "link", "set", name, "up");
  }
  const warmUp = node.sandbox("warm-up");
  await node.must("ADD", warmUp, { networks: names });
  await node.must("DEL", warmUp);
  const pods = [node.sandbox("one"), node.sandbox("two")];
  const leaks = node.watch(...pods);
  const orders = [names, names.toReversed()];
  for (const [place, pod] of pods.entries()) {
    const order = orders[place] ?? [];
    const result = await node.must("ADD", pod, { networks: order });
    const interfaces = result["interfaces"] as {
      sandbox?: string;
      podNetwork: string;
      name: string;
    }[];
    const inPod = interfaces.filter(({ sandbox }) => (sandbox ?? "") !== "");
    assert.deepEqual(
      inPod.map(({ podNetwork }) => podNetwork),
      order,
    );
    assert.deepEqual(
      inPod.map(({ name }) => name),
      order.map((_, at) => (at === 0 ? "eth0" : `net${at}`)),
    );
    await node.must("CHECK", pod);
    await node.must("DEL", pod);
  }
  await cleanSoon(leaks);
  rmSync(stores, { recursive: true });
});
