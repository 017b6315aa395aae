import assert from "node:assert/strict";
import { test } from "node:test";
import { inProcessPlugins } from "../../daemon/plugins/registry.ts";
import { cniCode } from "../../lib/cni/errors.ts";
import { Attached, cleanSoon, moveIntoNode, staticIpam, watch } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { kernelState } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
const plugin = inProcessPlugins.get("ptp");
assert(plugin);
const ptp = plugin;
// The plugin leaves forwarding on, which must not count as a leak.
node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1");

function attachment(pod: Place, config: object = {}, containerId = "container"): Attached {
  const ipam = staticIpam(["10.1.0.2/24", "10.1.0.1"]);
  return new Attached(ptp, { pod, containerId, config: { type: "ptp", ipam, ...config } });
}

function hostLink(): string {
  const name = kernelState(node)
    .links.map((link) => String(link["ifname"]))
    .find((one) => one.startsWith("veth"));
  assert(name);
  return name;
}

const warmUp = attachment(lab.pod());
await warmUp.add();
await warmUp.del();

test("ptp: both families reach the node and another pod through it; DEL leaves nothing", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const leaks = await watch(node, one, two);
  const first = attachment(one, {
    mtu: 1400,
    ipam: {
      ...staticIpam(["10.1.0.2/24", "10.1.0.1"], ["fd00:1::2/64", "fd00:1::1"]),
      routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
    },
  });
  const second = attachment(two, { ipam: staticIpam(["10.1.0.3/24", "10.1.0.1"]) }, "other");
  const result = await first.add();
  const name = hostLink();
  assert.deepEqual(
    result.interfaces.map(({ mac, ...others }) => others),
    [
      { name, mtu: 1400 },
      { name: "eth0", mtu: 1400, sandbox: one.path },
    ],
  );
  assert.deepEqual(
    result.ips.map((ip) => ip.interface),
    [1, 1],
  );
  await second.add();
  const routes = one.run("ip", "-4", "route").trim().split(/ *\n/);
  assert.deepEqual(routes, [
    "default via 10.1.0.1 dev eth0",
    "10.1.0.0/24 via 10.1.0.1 dev eth0 src 10.1.0.2",
    "10.1.0.1 dev eth0 scope link src 10.1.0.2",
  ]);
  assert.match(node.run("ip", "route"), new RegExp(`10.1.0.2 dev ${name} scope host`));
  one.run("ping", "-c1", "-W2", "10.1.0.1");
  one.run("ping", "-c1", "-W2", "10.1.0.3");
  // The node's end is in duplicate address detection for a second.
  one.run("ping", "-6", "-c3", "-i1", "-W1", "fd00:1::1");
  await first.check();
  await first.del();
  await first.del();
  await second.del();
  await cleanSoon(leaks);
});

test("ptp: ipMasq hides the pod's address outside of its subnet, whatever the backend's name", async () => {
  const [pod, outside] = [lab.pod(), lab.pod()];
  node.run(
    "ip",
    "link",
    "add",
    "out0",
    "type",
    "veth",
    "peer",
    "name",
    "eth0",
    "netns",
    outside.name,
  );
  node.run("ip", "address", "add", "192.0.2.1/24", "dev", "out0");
  node.run("ip", "link", "set", "out0", "up");
  outside.run("ip", "address", "add", "192.0.2.2/24", "dev", "eth0");
  outside.run("ip", "link", "set", "eth0", "up");
  const ipam = { ...staticIpam(["10.1.0.2/24", "10.1.0.1"]), routes: [{ dst: "0.0.0.0/0" }] };
  const plain = attachment(pod, { ipam });
  await plain.add();
  // Outside has no route back to the pod.
  assert.throws(() => pod.run("ping", "-c1", "-W1", "192.0.2.2"));
  await plain.del();
  const masqueraded = attachment(pod, { ipam, ipMasq: true, ipMasqBackend: "iptables" });
  await masqueraded.add();
  pod.run("ping", "-c1", "-W2", "192.0.2.2");
  await masqueraded.check();
  await masqueraded.del();
  node.run("ip", "link", "del", "out0");
});

test("ptp: dns of the configuration replaces that of IPAM only when it says something", async () => {
  const pod = lab.pod();
  const ipam = { ...staticIpam(["10.1.0.2/24", "10.1.0.1"]), dns: { nameservers: ["10.0.0.53"] } };
  const without = attachment(pod, { ipam });
  assert.deepEqual((await without.add()).dns, { nameservers: ["10.0.0.53"] });
  await without.del();
  const own = attachment(pod, { ipam, dns: { domain: "example.org" } });
  assert.deepEqual((await own.add()).dns, { domain: "example.org" });
  await own.del();
});

test("ptp: DEL deletes the pair when the pod renamed its end, and when the namespace is gone", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const leaks = await watch(node);
  const renamed = attachment(one);
  await renamed.add();
  one.run("ip", "link", "set", "eth0", "down");
  one.run("ip", "link", "set", "eth0", "name", "mine");
  await renamed.del();
  const gone = attachment(two);
  await gone.add();
  // Held open, so that the pair outlives the name of the namespace.
  await gone.delWithoutPod();
  await cleanSoon(leaks);
});

test("ptp: an interface that was there before is not touched", async () => {
  const pod = lab.pod();
  pod.run("ip", "link", "add", "eth0", "type", "bridge");
  const leaks = await watch(node, pod);
  await assert.rejects(attachment(pod).add(), { code: cniCode.invalidEnvironment });
  await cleanSoon(leaks);
});

const wrong: readonly (readonly [string, object, RegExp])[] = [
  ["no ipam", { ipam: undefined }, /ptp needs addresses: set "ipam"/],
  [
    "an address without gateway",
    { ipam: staticIpam(["10.1.0.2/24"]) },
    /address "10.1.0.2\/24" has no gateway/,
  ],
  [
    "a backend that is none",
    { ipMasqBackend: "pf" },
    /ipMasqBackend: must be "iptables" or "nftables"/,
  ],
  ["an mtu that no veth can have", { mtu: 70000 }, /mtu: must be 0, or 68 to 65535/],
  ["an mtu that is no number", { mtu: "1500" }, /mtu: /],
];
for (const [what, config, message] of wrong) {
  test(`ptp: ${what} is refused, and nothing is left`, async () => {
    const pod = lab.pod();
    const leaks = await watch(node, pod);
    await assert.rejects(attachment(pod, config).add(), {
      code: cniCode.invalidNetworkConfig,
      message,
    });
    await cleanSoon(leaks);
  });
}

const drifts: readonly (readonly [string, (pod: Place) => unknown, RegExp])[] = [
  [
    "address",
    (pod) => pod.run("ip", "addr", "del", "10.1.0.2/24", "dev", "eth0"),
    /lacks address "10.1.0.2\/24"/,
  ],
  [
    "gateway",
    () => node.run("ip", "addr", "del", "10.1.0.1/32", "dev", hostLink()),
    /lacks address "10.1.0.1"/,
  ],
  [
    "state of the node's end",
    () => node.run("ip", "link", "set", hostLink(), "down"),
    /of the node is down/,
  ],
  [
    "route to the pod",
    () => node.run("ip", "route", "del", "10.1.0.2"),
    /lacks the route to "10.1.0.2/,
  ],
  [
    "hardware address",
    (pod) => pod.run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:99"),
    /its hardware address is 02/,
  ],
];
for (const [what, change, message] of drifts) {
  test(`ptp: CHECK notices another ${what}`, async () => {
    const pod = lab.pod();
    const attached = attachment(pod);
    await attached.add();
    await attached.check();
    change(pod);
    await assert.rejects(attached.check(), { message });
    await attached.del();
  });
}
