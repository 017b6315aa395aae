import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { bandwidth } from "../../daemon/plugins/bandwidth.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { Netns } from "../../lib/base/netns.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import { Attached, moveIntoNode } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { LeakCheck } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
const pod = lab.pod();

/** A pod with a veth pair to the node, made anew: the buckets on the node's end go with it. */
function connect(): CniResult {
  node.run("sh", "-c", "ip link del v0 2>/dev/null; true");
  for (const command of [
    `link add v0 mtu 1400 type veth peer name eth0 mtu 1400 netns ${pod.name}`,
    "link set v0 up",
    "address add 10.8.0.1/24 dev v0",
  ]) {
    node.run("ip", ...command.split(" "));
  }
  pod.run("ip", "link", "set", "eth0", "up");
  pod.run("ip", "address", "add", "10.8.0.2/24", "dev", "eth0");
  return {
    interfaces: [{ name: "v0" }, { name: "eth0", sandbox: pod.path }],
    ips: [{ address: "10.8.0.2/24", interface: 1 }],
    routes: [],
    dns: {},
  };
}

function attach(
  config: JsonObject,
  runtimeConfig: JsonObject = {},
  prevResult = connect(),
): Attached {
  return new Attached(bandwidth, {
    pod,
    config: { type: "bandwidth", ...config },
    runtimeConfig,
    prevResult,
  });
}

function qdiscs(place: Place, device: string): JsonObject[] {
  return JSON.parse(place.run("tc", "-j", "qdisc", "show", "dev", device)) as JsonObject[];
}

/** Milliseconds that 400 kB take over TCP from one place to another. */
async function transferTime(from: Place, to: Place, address: string): Promise<number> {
  const server = to.wrap([
    process.execPath,
    "-e",
    `require("net").createServer((s)=>s.resume().on("end",()=>s.end())).listen(7000,"0.0.0.0",()=>console.log("up"))`,
  ]);
  const child = spawn(server[0] ?? "", server.slice(1), { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((up) => child.stdout.once("data", up));
  const client = from.wrap([
    process.execPath,
    "-e",
    `const t=performance.now();const s=require("net").connect(7000,"${address}");s.end(Buffer.alloc(400000));s.resume();s.on("close",()=>process.stdout.write(String(performance.now()-t)))`,
  ]);
  const { stdout } = spawnSync(client[0] ?? "", client.slice(1), { encoding: "utf8" });
  child.kill();
  return Number(stdout);
}

test("bandwidth: both directions are held to their rates, CHECK passes, DEL leaves nothing", async () => {
  // Opened once for the life of the process.
  Netns.current();
  const before = connect();
  node.run("ip", "link", "del", "v0");
  const leaks = new LeakCheck([node]);
  assert.equal(before.interfaces.length, 2);
  const attached = attach({
    ingressRate: 4_000_000,
    ingressBurst: 80_000,
    egressRate: 8_000_000,
    egressBurst: 160_000,
  });
  const free = await transferTime(node, pod, "10.8.0.2");
  const result = await attached.add();
  const ifb = result.interfaces[2];
  assert.match(ifb?.name ?? "", /^bwp[0-9a-f]{12}$/);
  assert.equal(ifb?.sandbox, undefined);
  const [bucket, ingress] = qdiscs(node, "v0");
  // What `tc` shows after the reference executable with the same rates.
  assert.deepEqual(bucket, {
    kind: "tbf",
    handle: "1:",
    root: true,
    refcnt: bucket?.["refcnt"],
    options: { rate: 500_000, burst: 10_000, lat: 25_000 },
  });
  assert.equal(ingress?.["kind"], "ingress");
  assert.deepEqual(qdiscs(node, ifb?.name ?? "")[0]?.["options"], {
    rate: 1_000_000,
    burst: 20_000,
    lat: 25_000,
  });
  const link = JSON.parse(node.run("ip", "-j", "link", "show", ifb?.name ?? ""))[0];
  assert.equal(link.mtu, 1400);
  await attached.check();
  const [received, sent] = [
    await transferTime(node, pod, "10.8.0.2"),
    await transferTime(pod, node, "10.8.0.1"),
  ];
  // 400 kB: 0.8 s at 4 Mbit/s, 0.4 s at 8 Mbit/s; without limits some milliseconds.
  assert.ok(
    received > 650 && received < 4000,
    `received in ${received} ms, ${free} without a limit`,
  );
  assert.ok(sent > 300 && sent < received, `sent in ${sent} ms`);
  await attached.del();
  await attached.del();
  node.run("ip", "link", "del", "v0");
  // The kernel's own part of deleting a link goes on after the link is gone, with its socket.
  await setTimeout(200);
  leaks.assertClean();
});

test("bandwidth: one direction only, from the capability argument; inline keys win", async () => {
  const ingress = attach({}, { bandwidth: { ingressRate: 8000, ingressBurst: 4_294_967_295 } });
  assert.equal((await ingress.add()).interfaces.length, 2);
  assert.deepEqual(
    qdiscs(node, "v0").map(({ kind }) => kind),
    ["tbf"],
  );
  await ingress.check();
  await ingress.del();
  const egress = attach(
    { egressRate: 8000, egressBurst: 8000 },
    { bandwidth: { ingressRate: 8000, ingressBurst: 8000 } },
  );
  assert.equal((await egress.add()).interfaces.length, 3);
  assert.deepEqual(
    qdiscs(node, "v0").map(({ kind }) => kind),
    ["noqueue", "ingress"],
  );
  await egress.check();
  await egress.del();
  const none = attach({ ingressRate: 0, ingressBurst: 0 });
  await none.add();
  assert.deepEqual(
    qdiscs(node, "v0").map(({ kind }) => kind),
    ["noqueue"],
  );
  await none.del();
});

test("bandwidth: CHECK finds a bucket, a redirection or a link that is gone or changed", async () => {
  const breaks: readonly [string, RegExp][] = [
    ["tc qdisc del dev v0 root", /"v0" has no token bucket/],
    ["tc qdisc change dev v0 root tbf rate 9mbit burst 10000 latency 25ms", /rate 1125000/],
    ["tc filter del dev v0 ingress", /does not send/],
    ["ip link del $(ip -br link show type ifb | cut -d' ' -f1)", /is gone/],
  ];
  for (const [command, message] of breaks) {
    const attached = attach({
      ingressRate: 1_000_000,
      ingressBurst: 80_000,
      egressRate: 1_000_000,
      egressBurst: 80_000,
    });
    await attached.add();
    node.run("sh", "-c", command);
    await assert.rejects(attached.check(), { code: 999, message });
    await attached.del();
    assert.equal(node.run("ip", "link", "show", "type", "ifb"), "");
  }
});

test("bandwidth: wrong values and interfaces that are no veth pair are refused", async () => {
  for (const [config, message] of [
    [{ ingressRate: 1000 }, /ingressBurst must be at least 8 bits where ingressRate is set/],
    [{ egressBurst: 1000 }, /egressRate must be at least 8/],
    [{ ingressRate: -1, ingressBurst: "x" }, /ingressRate.*ingressBurst/],
    [{ ingressRate: 4, ingressBurst: 80 }, /ingressRate must be at least 8/],
    [{ ingressRate: 8000, ingressBurst: 34_359_738_360 }, /less than 34359738360/],
  ] as const) {
    await assert.rejects(attach(config as JsonObject).addOnly(), { code: 7, message });
  }
  const attached = attach({ ingressRate: 8000, ingressBurst: 8000 });
  pod.run("ip", "link", "set", "eth0", "name", "other");
  await assert.rejects(attached.add(), { code: 7, message: /no veth pair/ });
});

test("bandwidth: a burst that is too small for its rate is refused by key, in each direction", async () => {
  for (const direction of ["ingress", "egress"]) {
    const config = { [`${direction}Rate`]: 1_000_000_000_000, [`${direction}Burst`]: 8 };
    await assert.rejects(attach(config).add(), {
      code: 7,
      message: new RegExp(`${direction}Burst 8 is too small for ${direction}Rate 1000000000000`),
    });
  }
});
