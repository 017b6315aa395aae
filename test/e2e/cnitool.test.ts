import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { Daemon, podNetwork } from "../helpers/daemon.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { MountedNode } from "../helpers/mounts.ts";
import { part } from "../helpers/parts.ts";
import { mustRunPlugin } from "../helpers/plugin-call.ts";
import { LeakCheck, nftRuleset } from "../helpers/state.ts";

// cnitool is the reference library's own runtime: what it accepts, every runtime on that library accepts.

const stack = new AsyncDisposableStack();
let lab: Lab;
let node: MountedNode;
let daemon: Daemon;
let plugins: string;
let stores: string;

/** Reference executables under names that podnet has no own type for, so that it must start them. */
const delegates = {
  "ref-bridge": "bridge",
  "ref-tuning": "tuning",
  "ref-host-local": "host-local",
};

before(async () => {
  lab = stack.use(new Lab());
  node = stack.use(MountedNode.make(lab));
  plugins = join(lab.folder(), "bin");
  stores = lab.folder();
  mkdirSync(plugins);
  const reference = part("reference-plugins");
  for (const [name, original] of Object.entries(delegates))
    copyFileSync(join(reference, original), join(plugins, name));
  copyFileSync(join(reference, "host-local"), join(plugins, "host-local"));
  copyFileSync(resolve("dist/bin/podnet"), join(plugins, "podnet"));
  const hostLocal = (subnet: string, type = "host-local") => ({
    type,
    dataDir: stores,
    ranges: [[{ subnet }]],
  });
  daemon = await Daemon.start({
    lab,
    node,
    binDirs: [plugins],
    networks: {
      blue: podNetwork("blue", {
        type: "bridge",
        bridge: "br-blue",
        isGateway: true,
        ipam: hostLocal("10.10.0.0/24"),
      }),
      red: podNetwork("red", {
        type: "bridge",
        bridge: "br-red",
        ipam: {
          type: "host-local",
          dataDir: stores,
          ranges: [[{ subnet: "10.20.0.0/24" }], [{ subnet: "fd20::/64" }]],
        },
      }),
      mixed: podNetwork("mixed", {
        plugins: [
          { type: "bridge", bridge: "br-mixed", ipam: hostLocal("10.30.0.0/24", "ref-host-local") },
          { type: "ref-tuning", sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
        ],
      }),
      foreign: podNetwork("foreign", {
        type: "ref-bridge",
        bridge: "br-foreign",
        ipam: hostLocal("10.40.0.0/24"),
      }),
    },
  });
  stack.defer(() => daemon.stop());
  const conflist = {
    cniVersion: "1.0.0",
    cniVersions: ["1.0.0", "1.1.0"],
    name: "podnet",
    plugins: [{ type: "podnet", daemonSocket: daemon.socket }],
  };
  writeFileSync(join(dirname(plugins), "10-podnet.conflist"), JSON.stringify(conflist));
});

after(() => stack.disposeAsync());

function cnitool(verb: "add" | "check" | "del", pod: Place, networks: string) {
  const variables = [
    `NETCONFPATH=${dirname(plugins)}`,
    `CNI_PATH=${plugins}`,
    `CNI_ARGS=IgnoreUnknown=1;PODNET_NETWORKS=${networks}`,
  ];
  const [program = "", ...args] = node.wrap([
    "env",
    ...variables,
    part("cnitool"),
    verb,
    "podnet",
    pod.path,
  ]);
  const done = spawnSync(program, args, { encoding: "utf8", timeout: 60_000 });
  return {
    ok: done.status === 0,
    stdout: done.stdout,
    text: `${done.stdout}${done.stderr}\n${daemon.log.slice(-3000)}`,
  };
}

function addresses(pod: Place): Record<string, string[]> {
  const links = JSON.parse(pod.run("ip", "-j", "address")) as {
    ifname: string;
    addr_info: { local: string; scope: string }[];
  }[];
  const global = links.map(
    (link) =>
      [
        link.ifname,
        link.addr_info.filter((one) => one.scope === "global").map((one) => one.local),
      ] as const,
  );
  return Object.fromEntries(global.filter(([name]) => name !== "lo"));
}

/** Files that host-local left below its folder, other than its own lock and last-reserved files. */
function reservations(): string[] {
  return readdirSync(stores, { recursive: true, encoding: "utf8" })
    .filter((file) => /\/[0-9a-f.:]+$/.test(file))
    .toSorted();
}

test("cnitool, with PODNET_NETWORKS of two networks, adds both, checks them and deletes all", () => {
  const pod = lab.pod();
  const check = new LeakCheck([pod]);
  const added = cnitool("add", pod, "blue,red");
  assert.ok(added.ok, added.text);
  const result = JSON.parse(added.stdout);
  assert.deepEqual(addresses(pod), { eth0: ["10.10.0.2"], net1: ["10.20.0.2", "fd20::2"] });
  assert.deepEqual(result.ips.map((ip: { address: string }) => ip.address).toSorted(), [
    "10.10.0.2/24",
    "10.20.0.2/24",
    "fd20::2/64",
  ]);
  for (const ip of result.ips) assert.equal(result.interfaces[ip.interface].sandbox, pod.path);
  const checked = cnitool("check", pod, "blue,red");
  assert.ok(checked.ok, checked.text);
  pod.run("ip", "address", "del", "10.20.0.2/24", "dev", "net1");
  const broken = cnitool("check", pod, "blue,red");
  assert.ok(!broken.ok, "check must see that an address is gone");
  assert.match(broken.text, /red/);
  for (const time of ["first", "second"]) {
    const deleted = cnitool("del", pod, "blue,red");
    assert.ok(deleted.ok, `${time} del: ${deleted.text}`);
  }
  check.assertClean();
  assert.deepEqual(reservations(), []);
  assert.deepEqual(nftRuleset(node), []);
});

test("the stub's own answer, which typed runtimes reduce, tags every interface and every IP with its network", async () => {
  const pod = lab.pod();
  const run = daemon.call({
    verb: "ADD",
    containerId: "tagged",
    netns: pod.path,
    ifName: "eth0",
    networks: ["blue", "red"],
  });
  const result = await mustRunPlugin(run);
  const inPod = result.interfaces.filter((one: { sandbox?: string }) => one.sandbox === pod.path);
  assert.deepEqual(
    inPod.map((one: { name: string; podNetwork: string }) => [one.name, one.podNetwork]),
    [
      ["eth0", "blue"],
      ["net1", "red"],
    ],
  );
  assert.deepEqual(
    result.ips.map((one: { podNetwork: string }) => one.podNetwork),
    ["blue", "red", "red"],
  );
  assert.ok(
    result.interfaces.every((one: { podNetwork?: string }) => one.podNetwork !== undefined),
  );
  await mustRunPlugin({ ...run, verb: "DEL" });
  assert.deepEqual(reservations(), []);
});

test("a list that mixes own plugins with executables, when added and deleted, has the effects of each and leaves nothing", () => {
  const pod = lab.pod();
  const check = new LeakCheck([pod]);
  const added = cnitool("add", pod, "mixed");
  assert.ok(added.ok, added.text);
  assert.deepEqual(addresses(pod), { eth0: ["10.30.0.2"] });
  assert.equal(pod.run("sysctl", "-n", "net.ipv4.conf.eth0.arp_filter").trim(), "1");
  assert.ok(existsSync(join(stores, "mixed", "10.30.0.2")));
  const checked = cnitool("check", pod, "mixed");
  assert.ok(checked.ok, checked.text);
  const deleted = cnitool("del", pod, "mixed");
  assert.ok(deleted.ok, deleted.text);
  check.assertClean();
  assert.deepEqual(reservations(), []);
});

test("a network of an executable only, beside one of our own, is attached in the same call", () => {
  const pod = lab.pod();
  const added = cnitool("add", pod, "blue,foreign");
  assert.ok(added.ok, added.text);
  assert.deepEqual(Object.keys(addresses(pod)), ["eth0", "net1"]);
  assert.match(addresses(pod)["net1"]?.[0] ?? "", /^10\.40\.0\./);
  const deleted = cnitool("del", pod, "blue,foreign");
  assert.ok(deleted.ok, deleted.text);
  assert.deepEqual(addresses(pod), {});
  assert.deepEqual(reservations(), []);
});

test("cnitool, with a network that does not exist, prints its name and leaves nothing", () => {
  const pod = lab.pod();
  const check = new LeakCheck([node, pod]);
  const added = cnitool("add", pod, "blue,missing");
  assert.ok(!added.ok);
  assert.match(added.text, /missing/);
  check.assertClean();
  assert.deepEqual(reservations(), []);
});
