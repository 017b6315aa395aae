import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { hostVethName } from "../../daemon/plugins/shared/names.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniVerb } from "../../lib/cni/types.ts";
import { InProcess } from "../helpers/in-process.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { kernelState, openFiles } from "../helpers/state.ts";

/** A node with a process of podnet's plugins, and a bridge that is there before, so that DEL ends where ADD began. */
function start(lab: Lab, { quiet = false } = {}) {
  const node = lab.node();
  // The kernel gives a bridge its link-local address when it first has a carrier, and that stays.
  if (quiet) node.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1");
  const folder = lab.folder();
  node.run("ip", "link", "add", "br0", "type", "bridge");
  node.run("ip", "link", "set", "br0", "up", "address", "0a:00:00:00:00:01");
  // A bridge that had a port is not quite as before: its offload limits stay changed.
  node.run("ip", "link", "add", "port0", "master", "br0", "type", "veth", "peer", "name", "port1");
  node.run("ip", "link", "del", "port0");
  const config = (more: JsonObject = {}): JsonObject => ({
    cniVersion: "1.1.0",
    name: "blue",
    type: "bridge",
    bridge: "br0",
    ipam: {
      type: "host-local",
      dataDir: folder,
      ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "fd00:1::/64" }]],
    },
    ...more,
  });
  return { node, folder, config };
}

const at = (
  pod: Place | string,
  config: JsonObject,
  more: { id?: string; ifName?: string } = {},
) => ({
  type: "bridge",
  containerId: more.id ?? "c1",
  ifName: more.ifName ?? "eth0",
  netns: typeof pod === "string" ? pod : pod.path,
  config,
});
const verb = (name: CniVerb) => ({ verb: name });
const linkNames = (place: Place) =>
  (JSON.parse(place.run("ip", "-j", "link")) as { ifname: string }[]).map(({ ifname }) => ifname);

test("bridge, after ADD, CHECK and DEL of several pods, leaves links, addresses, routes, rules and files as before", async () => {
  using lab = new Lab();
  const { node, config } = start(lab, { quiet: true });
  const pods = [lab.pod(), lab.pod(), lab.pod()];
  await using plugins = InProcess.start(node);
  const before = kernelState(node);
  const cycle = async () => {
    await Promise.all(
      pods.map(async (pod, index) => {
        const call = at(pod, config({ mtu: 1400, hairpinMode: true }), { id: `c${index}` });
        const prevResult = await plugins.mustRun({ ...call, ...verb("ADD") });
        await plugins.mustRun({
          ...call,
          ...verb("CHECK"),
          config: { ...call.config, prevResult },
        });
        await plugins.mustRun({ ...call, ...verb("DEL") });
        await plugins.mustRun({ ...call, ...verb("DEL") });
      }),
    );
  };
  await cycle();
  const files = openFiles(plugins.pid);
  for (let round = 0; round < 5; round++) await cycle();
  assert.deepEqual(kernelState(node), before);
  assert.deepEqual(openFiles(plugins.pid), files);
  for (const pod of pods) assert.deepEqual(linkNames(pod), ["lo"]);
});

test("bridge, with a gateway, lets pods reach the gateway and one another over both families", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  const [one, other] = [lab.pod(), lab.pod()];
  await using plugins = InProcess.start(node);
  await plugins.mustRun({ ...at(one, config({ isDefaultGateway: true })), ...verb("ADD") });
  await plugins.mustRun({
    ...at(other, config({ isDefaultGateway: true }), { id: "c2" }),
    ...verb("ADD"),
  });
  for (const address of ["10.1.0.1", "10.1.0.3", "fd00:1::3"])
    one.run("ping", "-c1", "-W3", address);
  const port = hostVethName("c1", "eth0");
  assert.deepEqual(JSON.parse(node.run("ip", "-j", "-6", "address", "show", "dev", port)), []);
  assert.match(one.run("ip", "-6", "address", "show", "dev", "eth0"), /inet6 fe80:/);
});

test("bridge, when the pod has the interface already, fails with code 4 and leaves it alone, also at DEL", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  const pod = lab.pod();
  pod.run("ip", "link", "add", "eth0", "type", "bridge");
  await using plugins = InProcess.start(node);
  const before = [kernelState(node), kernelState(pod)];
  const call = at(pod, config());
  const { json } = await plugins.run({ ...call, ...verb("ADD") });
  assert.equal(json.code, 4);
  assert.match(json.msg, /"eth0" of network "blue": an interface of that name exists already/);
  await plugins.mustRun({ ...call, ...verb("DEL") });
  assert.deepEqual([kernelState(node), kernelState(pod)], before);
});

test("bridge, when an ADD comes twice, fails with code 4 and the attachment stays", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  const pod = lab.pod();
  await using plugins = InProcess.start(node);
  const call = at(pod, config());
  const prevResult = await plugins.mustRun({ ...call, ...verb("ADD") });
  assert.equal((await plugins.run({ ...call, ...verb("ADD") })).json.code, 4);
  await plugins.mustRun({ ...call, ...verb("CHECK"), config: { ...call.config, prevResult } });
  pod.run("ip", "link", "set", "eth0", "down");
  pod.run("ip", "link", "set", "eth0", "name", "mine");
  const again = await plugins.run({ ...call, ...verb("ADD") });
  assert.equal(again.json.code, 11, "the node's end is still there");
  assert.match(again.json.msg, /run DEL first/);
});

test("bridge, at DEL, finds its link when the pod's end was renamed and when the namespace is gone", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  await using plugins = InProcess.start(node);
  const before = linkNames(node);
  const renamed = lab.pod();
  const call = at(renamed, config());
  await plugins.mustRun({ ...call, ...verb("ADD") });
  renamed.run("ip", "link", "set", "eth0", "down");
  renamed.run("ip", "link", "set", "eth0", "name", "hidden");
  renamed.run("ip", "link", "add", "eth0", "type", "bridge");
  await plugins.mustRun({ ...call, ...verb("DEL") });
  assert.deepEqual(linkNames(node), before);
  assert.deepEqual(linkNames(renamed), ["lo", "eth0"]);

  const gone = lab.pod();
  await plugins.mustRun({ ...at(gone, config()), ...verb("ADD") });
  // Something holds the namespace, so that its links stay.
  const holder = node.run(
    "bash",
    "-c",
    `nsenter --net=${gone.path} sleep 30 >/dev/null 2>&1 & echo $!`,
  );
  await setTimeout(50);
  lab.remove(gone);
  assert.equal(linkNames(node).includes(hostVethName("c1", "eth0")), true);
  await plugins.mustRun({ ...at(gone, config()), ...verb("DEL") });
  assert.deepEqual(linkNames(node), before);
  process.kill(Number(holder), "SIGKILL");
});

test("bridge, at DEL, does not touch an interface of the node that has the name but is none of its own", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  await using plugins = InProcess.start(node);
  node.run("ip", "link", "add", hostVethName("c1", "eth0"), "type", "bridge");
  await plugins.mustRun({ ...at("", config()), ...verb("DEL") });
  assert.equal(linkNames(node).includes(hostVethName("c1", "eth0")), true);
});

const drifts: [what: string, where: "node" | "pod", command: string, reason: RegExp][] = [
  ["the address", "pod", "ip address del 10.1.0.2/24 dev eth0", /lacks address "10.1.0.2\/24"/],
  [
    "the IPv6 address",
    "pod",
    "ip address del fd00:1::2/64 dev eth0",
    /lacks address "fd00:1::2\/64"/,
  ],
  [
    "a route",
    "pod",
    "ip route del 10.8.0.0/16",
    /lacks the route to "10.8.0.0\/16" via "10.1.0.1"/,
  ],
  [
    "the default route's gateway",
    "pod",
    "ip route replace default via 10.1.0.9",
    /lacks the route to "0.0.0.0\/0"/,
  ],
  [
    "the pod's MTU",
    "pod",
    "ip link set eth0 mtu 1300",
    /interface "eth0" has MTU 1300 instead of 1400/,
  ],
  ["the node's MTU", "node", "ip link set PORT mtu 1300", /"veth\w+" has MTU 1300 instead of 1400/],
  ["the master", "node", "ip link set PORT nomaster", /is not on bridge "br0"/],
  ["hairpin mode", "node", "bridge link set dev PORT hairpin off", /has hairpin mode off/],
  ["port isolation", "node", "bridge link set dev PORT isolated on", /has port isolation on/],
  ["the pod's state", "pod", "ip link set eth0 down", /interface "eth0" is down/],
  ["the port's state", "node", "ip link set PORT down", /"veth\w+" is down/],
  ["the bridge's state", "node", "ip link set br0 down", /bridge "br0" is down/],
  [
    "the gateway",
    "node",
    "ip address del 10.1.0.1/24 dev br0",
    /"br0" lacks the gateway address "10.1.0.1\/24"/,
  ],
  [
    "the pod's hardware address",
    "pod",
    "ip link set eth0 address 0a:00:00:00:00:99",
    /hardware address "0a:00:00:00:00:99" instead of/,
  ],
  [
    "the bridge's hardware address",
    "node",
    "ip link set br0 address 0a:00:00:00:00:98",
    /bridge "br0" has hardware address/,
  ],
  ["the pair", "node", "ip link del PORT", /"eth0" is gone from the pod/],
  [
    "the reservation",
    "node",
    "rm DATA/blue/10.1.0.2 DATA/blue/fd00:1::2",
    /no address is reserved/,
  ],
  ["masquerading", "node", "nft flush ruleset", /masquerading/],
];

for (const [what, where, command, reason] of drifts) {
  test(`bridge, at CHECK, when ${what} was changed, finds it`, async () => {
    using lab = new Lab();
    const { node, config, folder } = start(lab);
    const pod = lab.pod();
    await using plugins = InProcess.start(node);
    const base = config({ mtu: 1400, hairpinMode: true, isDefaultGateway: true, ipMasq: true });
    const ipam = { ...(base["ipam"] as JsonObject), routes: [{ dst: "10.8.0.0/16" }] };
    const call = at(pod, { ...base, ipam });
    const prevResult = await plugins.mustRun({ ...call, ...verb("ADD") });
    const check = { ...call, ...verb("CHECK"), config: { ...call.config, prevResult } };
    await plugins.mustRun(check);
    const port = hostVethName("c1", "eth0");
    const text = command.replaceAll("PORT", port).replaceAll("DATA", folder);
    (where === "node" ? node : pod).run("bash", "-ec", text);
    const { status, json } = await plugins.run(check);
    assert.equal(status, 1);
    assert.match(json.msg, reason);
    assert.notEqual(json.code, -1);
  });
}

test("bridge, with 20 ADDs at once on a bridge that does not exist, makes one and attaches all", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  await using plugins = InProcess.start(node);
  const pods = Array.from({ length: 20 }, () => lab.pod());
  const results = await Promise.all(
    pods.map((pod, index) =>
      plugins.mustRun({
        ...at(pod, config({ bridge: "new0", isGateway: true }), { id: `c${index}` }),
        ...verb("ADD"),
      }),
    ),
  );
  assert.equal(new Set(results.map((result) => result.ips[0].address)).size, 20);
  const ports = node.run("ip", "-o", "link", "show", "master", "new0").trim().split("\n");
  assert.equal(ports.length, 20);
});

test("bridge, when the process is killed at any moment of an ADD, leaves only what DEL takes away", async () => {
  using lab = new Lab();
  const { node, config } = start(lab, { quiet: true });
  const before = kernelState(node);
  for (let round = 0; round < 6; round++) {
    const pod = lab.pod();
    const call = at(pod, config());
    const doomed = InProcess.start(node);
    await doomed.run({ ...at(pod, config(), { id: "warm" }), ...verb("DEL") });
    const running = doomed.run({ ...call, ...verb("ADD") });
    await setTimeout(randomInt(0, 25));
    await doomed.kill();
    await running;
    await using plugins = InProcess.start(node);
    await plugins.mustRun({ ...call, ...verb("DEL") });
    assert.deepEqual(kernelState(node), before);
    assert.deepEqual(linkNames(pod), ["lo"]);
    await plugins.mustRun({ ...call, ...verb("ADD") });
    await plugins.mustRun({ ...call, ...verb("DEL") });
  }
});

test("bridge, when another pod has the IPv6 address and detection is on, fails with code 108", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  await using plugins = InProcess.start(node);
  const same = config({
    enabledad: true,
    ipam: { type: "static", addresses: [{ address: "fd00:1::5/64" }] },
  });
  await plugins.mustRun({ ...at(lab.pod(), same), ...verb("ADD") });
  const { json } = await plugins.run({ ...at(lab.pod(), same, { id: "c2" }), ...verb("ADD") });
  assert.equal(json.code, 108);
  assert.match(json.msg, /"fd00:1::5\/64".*on the network has it/);
});

test("bridge, in a pod where IPv6 is switched off, switches it on for its own address only", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  const pod = lab.pod();
  pod.run(
    "sysctl",
    "-qw",
    "net.ipv6.conf.default.disable_ipv6=1",
    "net.ipv6.conf.lo.disable_ipv6=1",
  );
  await using plugins = InProcess.start(node);
  await plugins.mustRun({ ...at(pod, config()), ...verb("ADD") });
  assert.equal(pod.run("sysctl", "-n", "net.ipv6.conf.eth0.disable_ipv6").trim(), "0");
  assert.equal(pod.run("sysctl", "-n", "net.ipv6.conf.default.disable_ipv6").trim(), "1");
});

test("bridge, with a namespace that is gone, fails with code 8 at ADD and succeeds at DEL", async () => {
  using lab = new Lab();
  const { node, config } = start(lab);
  await using plugins = InProcess.start(node);
  const call = at("/run/netns/podnet-test-none", config());
  assert.equal((await plugins.run({ ...call, ...verb("ADD") })).json.code, 8);
  await plugins.mustRun({ ...call, ...verb("DEL") });
});
