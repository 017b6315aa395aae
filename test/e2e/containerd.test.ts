import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Containerd, type ContainerdSuite } from "../helpers/containerd.ts";
import { Daemon, podNetwork } from "../helpers/daemon.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { MountedNode } from "../helpers/mounts.ts";
import { part } from "../helpers/parts.ts";
import { LeakCheck } from "../helpers/state.ts";

/** Debian releases with their containerd. The oldest runs every case, later ones what the runtime itself has a part in. */
const versions: readonly (readonly [ContainerdSuite, string])[] = [
  ["bookworm", "1.6"],
  ["trixie", "1.7"],
];

// Of the version that is tested at the moment.
let stack: AsyncDisposableStack;
let lab: Lab;
let containerd: Containerd;
let daemon: Daemon;
let outside: Place;

/** A machine beside the node, on a wire with it: 192.0.2.1 is the node, 192.0.2.2 the machine. */
function neighbour(node: Place): Place {
  const place = lab.node();
  node.run(
    "ip",
    "link",
    "add",
    "uplink",
    "type",
    "veth",
    "peer",
    "name",
    "uplink",
    "netns",
    place.name,
  );
  for (const [end, address] of [
    [node, "192.0.2.1/24"],
    [place, "192.0.2.2/24"],
  ] as const) {
    end.run("ip", "address", "add", address, "dev", "uplink");
    end.run("ip", "link", "set", "uplink", "up");
  }
  return place;
}

async function start(suite: ContainerdSuite): Promise<void> {
  stack = new AsyncDisposableStack();
  lab = stack.use(new Lab());
  const node = stack.use(MountedNode.make(lab));
  outside = neighbour(node);
  const stores = lab.folder();
  const ipam = (...subnets: string[]) => ({
    type: "host-local",
    dataDir: stores,
    ranges: subnets.map((subnet) => [{ subnet }]),
  });
  daemon = await Daemon.start({
    lab,
    node,
    networks: {
      default: podNetwork("default", {
        plugins: [
          {
            type: "bridge",
            bridge: "br0",
            isGateway: true,
            isDefaultGateway: true,
            ipam: ipam("10.1.0.0/24", "fd01::/64"),
          },
          { type: "portmap", capabilities: { portMappings: true } },
        ],
      }),
      blue: podNetwork("blue", { type: "bridge", bridge: "br-blue", ipam: ipam("10.10.0.0/24") }),
      red: podNetwork("red", { type: "bridge", bridge: "br-red", ipam: ipam("10.20.0.0/24") }),
    },
  });
  stack.defer(() => daemon.stop());
  // It goes before the daemon: pods that a failed test left are taken down by both.
  containerd = stack.use(await Containerd.start(lab, node, suite));
  node.run("cp", resolve("dist/bin/podnet"), "/opt/cni/bin/podnet");
  // containerd itself starts this one for the pod's loopback, whatever the network is.
  node.run("cp", join(part("reference-plugins"), "loopback"), "/opt/cni/bin/loopback");
  const conflist = {
    cniVersion: "1.0.0",
    cniVersions: ["1.0.0", "1.1.0"],
    name: "podnet",
    plugins: [
      {
        type: "podnet",
        daemonSocket: daemon.socket,
        capabilities: {
          "io.kubernetes.cri.pod-annotations": true,
          portMappings: true,
          bandwidth: true,
        },
      },
    ],
  };
  containerd.write("/etc/cni/net.d/10-podnet.conflist", JSON.stringify(conflist));
  await networkReady();
  // The first pod of a network leaves the bridge itself behind, as the reference plugin does; what later pods leave is a leak.
  const first = await containerd.runSandbox({
    name: "first",
    annotations: select("default", "blue", "red"),
  });
  await containerd.removeSandbox(first);
}

function select(...names: string[]): Record<string, string> {
  return { "podnet.dev/networks": JSON.stringify(names.map((name) => ({ name }))) };
}

async function networkReady(): Promise<void> {
  for (const until = Date.now() + 10_000; ; await sleep(50)) {
    const { status } = await containerd.cri("Status", {});
    if (status.conditions.every((one: { status: boolean }) => one.status)) return;
    assert.ok(
      Date.now() < until,
      `containerd's network is not ready: ${JSON.stringify(status.conditions)}\n${daemon.log}`,
    );
  }
}

/** Names of the result's interfaces, as containerd keeps them, with their IPs. */
function resultIps(cniResult: {
  Interfaces: Record<string, { IPConfigs: { IP: string }[] | null; Sandbox: string }>;
}) {
  const inPod = Object.entries(cniResult.Interfaces).filter(
    ([name, one]) => one.Sandbox !== "" && name !== "lo",
  );
  return Object.fromEntries(
    inPod.map(([name, one]) => [name, (one.IPConfigs ?? []).map((ip) => ip.IP)]),
  );
}

async function annotatedSandbox(): Promise<void> {
  const check = new LeakCheck([containerd.node]);
  const id = await containerd.runSandbox({
    name: "multi",
    annotations: select("default", "blue", "red"),
  });
  const { ips, cniResult } = await containerd.status(id);
  const found = resultIps(cniResult);
  assert.deepEqual(Object.keys(found), ["eth0", "net1", "net2"]);
  // containerd shows kubelet the IPs of eth0 as the pod's; the other networks' are in the verbose result only.
  assert.deepEqual(ips, found["eth0"]);
  assert.match(ips.join(" "), /^10\.1\.0\.\d+ fd01::\d+$/);
  const box = await containerd.runContainer(id, ["/bin/sleep", "1000"]);
  const inside = await containerd.exec(box, "ip", "-o", "address");
  for (const [name, subnet] of [
    ["eth0", "10.1.0."],
    ["eth0", "fd01::"],
    ["net1", "10.10.0."],
    ["net2", "10.20.0."],
  ] as const) {
    const address = found[name]?.find((ip) => ip.startsWith(subnet));
    assert.ok(
      address !== undefined && new RegExp(`${name}\\s+inet6? ${address}/`).test(inside),
      `${name} ${address}: ${inside}`,
    );
  }
  await containerd.exec(box, "ping", "-c1", "-W2", "10.1.0.1");
  await containerd.removeSandbox(id);
  check.assertClean();
}

async function twoNetworks(): Promise<void> {
  const pod = (name: string, network: string) =>
    containerd.runSandbox({ name, annotations: select("default", network) });
  const [one, two, other] = [
    await pod("one", "blue"),
    await pod("two", "blue"),
    await pod("other", "red"),
  ];
  const box = await containerd.runContainer(two, ["/bin/sleep", "1000"]);
  const address = async (id: string) =>
    resultIps((await containerd.status(id)).cniResult)["net1"]?.[0] ?? "";
  await containerd.exec(box, "ping", "-c1", "-W2", await address(one));
  await assert.rejects(
    containerd.exec(box, "ping", "-c1", "-W1", "-I", "net1", await address(other)),
  );
  for (const id of [one, two, other]) await containerd.removeSandbox(id);
}

async function hostPort(): Promise<void> {
  const id = await containerd.runSandbox({
    name: "web",
    portMappings: [{ hostPort: 8080, containerPort: 80 }],
  });
  await containerd.runContainer(id, [
    "/bin/sh",
    "-c",
    "echo hello >/tmp/index.html; httpd -f -p 80 -h /tmp",
  ]);
  assert.equal(await fetched(outside), "hello");
  assert.equal(await fetched(containerd.node), "hello");
  await containerd.removeSandbox(id);
  assert.equal(get(outside), undefined);
}

async function unknownNetwork(): Promise<void> {
  const check = new LeakCheck([containerd.node]);
  await assert.rejects(
    containerd.runSandbox({
      name: "wrong",
      annotations: select("blue", "missing"),
    }),
    /missing/,
  );
  check.assertClean();
}

function byCtr(): void {
  const check = new LeakCheck([containerd.node]);
  const cgroup = ["--cgroup", `/${containerd.node.name}/ctr`];
  const command = ["/bin/ip", "-o", "address", "show", "eth0"];
  const run = ["run", "--rm", "--cni", ...cgroup, containerd.image, "by-ctr", ...command];
  assert.match(containerd.ctr("--namespace", "k8s.io", ...run), /inet 10\.1\.0\.\d+\/24/);
  check.assertClean();
}

/** One HTTP request by bash alone; undefined when nobody answers. */
function get(from: Place): string | undefined {
  const script =
    'exec 3<>/dev/tcp/192.0.2.1/8080 && printf "GET /index.html HTTP/1.0\\r\\n\\r\\n" >&3 && cat <&3';
  const [program = "", ...args] = from.wrap(["timeout", "2", "bash", "-c", script]);
  const done = spawnSync(program, args, { encoding: "utf8" });
  return done.status === 0 ? done.stdout.split("\r\n\r\n")[1]?.trim() : undefined;
}

async function fetched(from: Place): Promise<string | undefined> {
  // The server in the container may need a moment.
  for (const until = Date.now() + 5_000; ; await sleep(50)) {
    const text = get(from);
    if (text !== undefined || Date.now() > until) return text;
  }
}

for (const [suite, version] of versions) {
  describe(`containerd ${version}`, () => {
    before(() => start(suite));
    after(() => stack.disposeAsync());
    test("is the one that runs", () => {
      assert.match(
        containerd.ctr("version"),
        new RegExp(`Server:\\s+Version:\\s+${RegExp.escape(version)}\\.`),
      );
    });
    test(
      "a pod sandbox, annotated with two networks, has three interfaces, and the runtime knows all of them",
      annotatedSandbox,
    );
    test(
      "a pod's host port, through the chained portmap, answers from another machine and from the node, and goes with the pod",
      hostPort,
    );
    if (suite !== "bookworm") return;
    test(
      "pods on one network reach each other over it, and pods on different ones do not",
      twoNetworks,
    );
    test(
      "an annotation that names an unknown network fails the sandbox with that name, and leaves nothing",
      unknownNetwork,
    );
    test("ctr run --cni gives the container the default network and takes it back", byCtr);
  });
}
