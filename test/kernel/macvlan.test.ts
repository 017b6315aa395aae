import assert from "node:assert/strict";
import { test } from "node:test";
import { inProcessPlugins } from "../../daemon/plugins/registry.ts";
import { cniCode } from "../../lib/cni/errors.ts";
import { Attached, cleanSoon, moveIntoNode, staticIpam, watch } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { kernelState } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
// Link-local addresses and their routes come a second after the links do.
node.run(
  "sysctl",
  "-qw",
  "net.ipv6.conf.all.disable_ipv6=1",
  "net.ipv6.conf.default.disable_ipv6=1",
);
node.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0");
node.run("ip", "link", "set", "up0", "mtu", "1400", "up");
node.run("ip", "link", "set", "far0", "up");
const plugin = inProcessPlugins.get("macvlan");
assert(plugin);
const macvlan = plugin;

interface Shape {
  readonly config?: object;
  readonly runtimeConfig?: { readonly mac: string };
  readonly cniArgs?: Record<string, string>;
  readonly containerId?: string;
  readonly ifName?: string;
}

function attachment(pod: Place, shape: Shape = {}): Attached {
  const { config, ...others } = shape;
  return new Attached(macvlan, {
    pod,
    config: { type: "macvlan", master: "up0", ...config },
    ...others,
  });
}

function link(pod: Place, name = "eth0") {
  return kernelState(pod).links.find((one) => one["ifname"] === name);
}

// What the process opens once and keeps is open from here on.
const warmUp = attachment(lab.pod());
await warmUp.add();
await warmUp.del();

test("macvlan: two pods in bridge mode reach each other and CHECK passes; DEL leaves nothing", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const leaks = await watch(node);
  const first = attachment(one, {
    config: {
      mtu: 1300,
      mac: "02:00:00:00:00:01",
      bcqueuelen: 50,
      ipam: {
        ...staticIpam(["10.1.0.1/24", "10.1.0.254"], ["fd00:1::1/64"]),
        routes: [
          { dst: "10.9.0.0/16", mtu: 1200, advmss: 1000, priority: 7, table: 100, scope: 0 },
        ],
      },
      dns: { nameservers: ["10.1.0.53"] },
    },
  });
  const second = attachment(two, {
    containerId: "other",
    config: { ipam: staticIpam(["10.1.0.2/24"], ["fd00:1::2/64"]) },
  });
  const result = await first.add();
  assert.deepEqual(result, {
    interfaces: [{ name: "eth0", mac: "02:00:00:00:00:01", mtu: 1300, sandbox: one.path }],
    ips: [
      { address: "10.1.0.1/24", gateway: "10.1.0.254", interface: 0 },
      { address: "fd00:1::1/64", interface: 0 },
    ],
    routes: [{ dst: "10.9.0.0/16", mtu: 1200, advmss: 1000, priority: 7, table: 100, scope: 0 }],
    dns: { nameservers: ["10.1.0.53"] },
  });
  await second.add();
  const kernel = link(one);
  assert.equal(kernel?.["mtu"], 1300);
  assert.equal(kernel?.["address"], "02:00:00:00:00:01");
  assert.deepEqual(kernel?.["linkinfo"], {
    info_kind: "macvlan",
    info_data: { mode: "bridge", bcqueuelen: 50, usedbcqueuelen: 1000 },
  });
  const route = one.run("ip", "route", "show", "table", "100");
  assert.match(route, /10\.9\.0\.0\/16 via 10\.1\.0\.254 dev eth0 metric 7 mtu 1200 advmss 1000/);
  assert.equal(one.run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_notify").trim(), "1");
  one.run("ping", "-c1", "-W2", "10.1.0.2");
  one.run("ping", "-6", "-c1", "-W2", "fd00:1::2");
  await first.check();
  await first.del();
  await first.del();
  await second.del();
  assert.equal(link(one), undefined);
  await cleanSoon(leaks);
});

test("macvlan: without an IPAM plugin the interface is up and has no address", async () => {
  const pod = lab.pod();
  const attached = attachment(pod);
  const result = await attached.add();
  assert.deepEqual(result.ips, []);
  assert.match(pod.run("ip", "-br", "link", "show", "eth0"), /UP/);
  await attached.check();
  await attached.del();
});

for (const mode of ["private", "vepa", "passthru"]) {
  test(`macvlan: mode ${mode} reaches the kernel`, async () => {
    const pod = lab.pod();
    const attached = attachment(pod, { config: { mode } });
    await attached.add();

    assert.match(pod.run("ip", "-d", "link", "show", "eth0"), new RegExp(`macvlan mode ${mode} `));
    await attached.del();
    assert.equal(link(pod), undefined);
  });
}

test("macvlan: private mode keeps two pods apart", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const first = attachment(one, { config: { mode: "private", ipam: staticIpam(["10.1.0.1/24"]) } });
  const second = attachment(two, {
    containerId: "other",
    config: { mode: "private", ipam: staticIpam(["10.1.0.2/24"]) },
  });
  await first.add();
  await second.add();
  assert.throws(() => one.run("ping", "-c1", "-W1", "10.1.0.2"));
  await first.del();
  await second.del();
});

test("macvlan: without master it is on the interface of the default route", async () => {
  const pod = lab.pod();
  node.run("ip", "address", "add", "192.0.2.2/24", "dev", "up0");
  node.run("ip", "route", "add", "default", "via", "192.0.2.1");
  const attached = attachment(pod, { config: { master: "" } });
  await attached.add();
  assert.equal(link(pod)?.["link_index"], kernelIndex("up0"));
  await attached.del();
  node.run("ip", "address", "del", "192.0.2.2/24", "dev", "up0");
  await assert.rejects(attachment(pod, { config: { master: "" } }).add(), {
    code: cniCode.invalidNetworkConfig,
    message: /no default route on this node: set "master"/,
  });
});

function kernelIndex(name: string): unknown {
  return (JSON.parse(node.run("ip", "-j", "link", "show", name)) as { ifindex: number }[])[0]
    ?.ifindex;
}

test("macvlan: linkInContainer takes a master of the sandbox", async () => {
  const pod = lab.pod();
  pod.run("ip", "link", "add", "inner", "type", "veth", "peer", "name", "inner2");
  const attached = attachment(pod, { config: { master: "inner", linkInContainer: true } });
  await attached.add();
  assert.equal(link(pod)?.["link"], "inner");
  await attached.check();
  await attached.del();
  assert.equal(link(pod), undefined);
  assert.ok(link(pod, "inner"));
});

test("macvlan: runtimeConfig mac wins over CNI_ARGS, which wins over the configuration", async () => {
  const pod = lab.pod();
  const config = { mac: "02:00:00:00:00:01" };
  const cniArgs = { MAC: "02-00-00-00-00-02" };
  const byArgs = attachment(pod, { config, cniArgs });
  assert.equal((await byArgs.add()).interfaces[0]?.mac, "02:00:00:00:00:02");
  await byArgs.del();
  const byRuntime = attachment(pod, {
    config,
    cniArgs,
    runtimeConfig: { mac: "02:00:00:00:00:0A" },
  });
  assert.equal((await byRuntime.add()).interfaces[0]?.mac, "02:00:00:00:00:0a");
  await byRuntime.del();
});

test("macvlan: an interface that was there before is not touched, neither by ADD nor by the DEL after it", async () => {
  const pod = lab.pod();
  pod.run("ip", "link", "add", "eth0", "type", "bridge");
  await assert.rejects(attachment(pod).add(), {
    code: cniCode.invalidEnvironment,
    message: /make interface "eth0": it exists already/,
  });
  assert.ok(link(pod));
});

test("macvlan: DEL deletes its interface under whatever name, and only that", async () => {
  const pod = lab.pod();
  const attached = attachment(pod);
  await attached.add();
  pod.run("ip", "link", "set", "eth0", "name", "mine");
  pod.run("ip", "link", "add", "eth0", "type", "bridge");
  await attached.del();
  assert.equal(link(pod, "mine"), undefined);
  assert.ok(link(pod));
});

test("macvlan: an interface of the node with the pod's name does not matter", async () => {
  const pod = lab.pod();
  node.run("ip", "link", "add", "eth0", "type", "bridge");
  const attached = attachment(pod);
  await attached.add();
  await attached.del();
  node.run("ip", "link", "del", "eth0");
});

test("macvlan: DEL succeeds when the namespace is gone", async () => {
  const pod = lab.pod();
  const attached = attachment(pod);
  await attached.add();
  lab.remove(pod);
  await attached.delWithoutPod();
});

test("macvlan: an IPv6 address that another pod has is refused with that one's hardware address, and undone", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const config = { ipam: staticIpam(["fd00:1::7/64"]) };
  const first = attachment(one, { config, cniArgs: { MAC: "02:00:00:00:00:07" } });
  await first.add();
  await assert.rejects(attachment(two, { config, containerId: "other" }).add(), {
    code: cniCode.addressUnavailable,
    message:
      /add address "fd00:1::7\/64".*hardware address "02:00:00:00:00:07" on the network has it/,
  });
  assert.equal(link(two), undefined);
  await first.del();
});

const wrong: readonly (readonly [string, object, RegExp])[] = [
  ["mode", { mode: "fast" }, /mode: "fast" is not a mode: must be private, vepa, bridge, passthru/],
  ["mtu above the master's", { mtu: 1401 }, /mtu 1401: must be 0 to 1400, the MTU of master "up0"/],
  ["mtu", { mtu: -1 }, /mtu: /],
  ["mac", { mac: "zz" }, /mac: "zz" is not a hardware address/],
  ["master", { master: "nope" }, /master "nope": no such interface on this node/],
  ["type of a key", { linkInContainer: "yes", bcqueuelen: "x" }, /linkInContainer: .*bcqueuelen: /],
];
for (const [what, config, message] of wrong) {
  test(`macvlan: a wrong ${what} is refused by name`, async () => {
    const pod = lab.pod();
    const leaks = await watch(node, pod);
    await assert.rejects(attachment(pod, { config }).add(), {
      code: cniCode.invalidNetworkConfig,
      message,
    });
    await cleanSoon(leaks);
  });
}

const drifts: readonly (readonly [string, readonly string[], RegExp])[] = [
  ["address", ["address", "del", "10.1.0.1/24", "dev", "eth0"], /lacks address "10.1.0.1\/24"/],
  ["route", ["route", "del", "10.9.0.0/16"], /lacks the route to "10.9.0.0\/16"/],
  ["MTU", ["link", "set", "eth0", "mtu", "1000"], /its MTU is 1000, not 1400/],
  ["state", ["link", "set", "eth0", "down"], /it is down/],
  [
    "mode",
    ["link", "set", "eth0", "type", "macvlan", "mode", "private"],
    /its mode is not "bridge"/,
  ],
  ["interface", ["link", "del", "eth0"], /it is gone/],
];
for (const [what, command, message] of drifts) {
  test(`macvlan: CHECK notices another ${what}`, async () => {
    const pod = lab.pod();
    const ipam = {
      ...staticIpam(["10.1.0.1/24", "10.1.0.254"]),
      routes: [{ dst: "10.9.0.0/16" }],
    };
    const attached = attachment(pod, { config: { ipam } });
    await attached.add();
    await attached.check();
    pod.run("ip", ...command);
    await assert.rejects(attached.check(), { message });
    await attached.del();
  });
}
