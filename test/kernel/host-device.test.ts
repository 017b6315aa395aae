import assert from "node:assert/strict";
import { closeSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { afterEach, test } from "node:test";
import koffi from "koffi";
import { claimsOfNode } from "../../daemon/plugins/devices/device-claims.ts";
import { hostDevice } from "../../daemon/plugins/host-device.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { Netns } from "../../lib/base/netns.ts";
import { cniCode } from "../../lib/cni/errors.ts";
import type { ValidAttachment } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { Attached, cleanSoon, moveIntoNode, staticIpam, watch } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { kernelState } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
node.run(
  "sysctl",
  "-qw",
  "net.ipv6.conf.all.disable_ipv6=1",
  "net.ipv6.conf.default.disable_ipv6=1",
);
// The other end lives in a namespace of its own, as a switch does.
const far = lab.pod();
node.run(
  "ip",
  "link",
  "add",
  "dev0",
  "address",
  "02:00:00:00:00:10",
  "type",
  "veth",
  "peer",
  "name",
  "far0",
  "netns",
  far.name,
);
node.run(
  "ip",
  "link",
  "set",
  "dev0",
  "mtu",
  "1400",
  "txqueuelen",
  "500",
  "alias",
  "uplink",
  "group",
  "7",
  "up",
);
node.run("ip", "link", "property", "add", "dev", "dev0", "altname", "device-zero");
far.run("ip", "address", "add", "10.1.0.2/24", "dev", "far0");
far.run("ip", "link", "set", "far0", "up");

interface Shape {
  readonly config?: object;
  readonly containerId?: string;
  readonly runtimeConfig?: JsonObject;
}

const live: Attached[] = [];
// So that a failed test takes nothing from the next one.
afterEach(async () => {
  for (const attached of live.splice(0)) await attached.del().catch(() => undefined);
});

function attachment(pod: Place, shape: Shape = {}): Attached {
  const { config, ...others } = shape;
  const whole = { type: "host-device", device: "dev0", ...config };
  const attached = new Attached(hostDevice, { pod, config: whole, ...others });
  live.push(attached);
  return attached;
}

const warmUp = attachment(lab.pod());
await warmUp.add();
await warmUp.del();

function names(place: Place): string[] {
  return kernelState(place).links.map((link) => String(link["ifname"]));
}

test("host-device: the interface serves the pod and comes back as it was", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod, {
    config: {
      ipam: { ...staticIpam(["10.1.0.1/24", "10.1.0.2"]), routes: [{ dst: "0.0.0.0/0" }] },
      dns: { nameservers: ["10.1.0.53"] },
    },
  });
  const result = await attached.add();
  assert.deepEqual(result, {
    interfaces: [{ name: "eth0", mac: "02:00:00:00:00:10", mtu: 1400, sandbox: pod.path }],
    ips: [{ address: "10.1.0.1/24", gateway: "10.1.0.2", interface: 0 }],
    routes: [{ dst: "0.0.0.0/0" }],
    dns: { nameservers: ["10.1.0.53"] },
  });
  assert.deepEqual(names(node), ["lo"]);
  assert.match(pod.run("ip", "link", "show", "eth0"), /alias dev0/);
  pod.run("ping", "-c1", "-W2", "10.1.0.2");
  await attached.check();
  await attached.del();
  await attached.del();
  await cleanSoon(leaks);
});

test("host-device: whatever a hostile workload did is undone", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod);
  await attached.add();
  for (const command of [
    "link set eth0 down",
    "link set eth0 name evil address 02:00:00:00:66:66 mtu 900 txqueuelen 3 alias pwned group 9",
    "link set evil promisc on allmulticast on",
    "link property del dev evil altname device-zero",
    "link property add dev evil altname worse",
    "address add 192.0.2.66/24 dev evil",
    "link add br0 type bridge",
    "link set evil master br0 up",
    // A decoy with the name that the interface had.
    "link add eth0 type bridge",
  ]) {
    pod.run("ip", ...command.split(" "));
  }
  await attached.del();
  assert.deepEqual(names(pod), ["br0", "eth0", "lo"]);
  for (const name of ["br0", "eth0"]) pod.run("ip", "link", "del", name);
  await cleanSoon(leaks);
});

test("host-device: what the workload stacked on the interface stays behind", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod);
  await attached.add();
  pod.run("ip", "link", "add", "on-top", "link", "eth0", "type", "macvlan", "mode", "bridge");
  pod.run("ip", "link", "set", "on-top", "up");
  await attached.del();
  await cleanSoon(leaks);
});

test("host-device: without IPAM it is up without addresses; hwaddr finds it too", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod, {
    config: { device: "", hwaddr: "02-00-00-00-00-10", dns: { domain: "x" } },
  });
  const result = await attached.add();
  assert.deepEqual(result.ips, []);
  assert.deepEqual(result.dns, {});
  assert.match(pod.run("ip", "-br", "link", "show", "eth0"), /UP/);
  await attached.check();
  await attached.del();
  await cleanSoon(leaks);
});

test("host-device: when somebody took its name meanwhile it comes back under a stable other one, and gets its own when that is free", async () => {
  const pod = lab.pod();
  const attached = attachment(pod);
  const leaks = await watch(node);
  await attached.add();
  node.run("ip", "link", "add", "dev0", "type", "bridge");
  await attached.del();
  assert.match(attached.warnings.join(), /comes back as "pn[0-9a-f]{10}": another interface took/);
  const [back] = kernelState(node).links.filter((link) => String(link["ifname"]).startsWith("pn"));
  assert.equal(back?.["address"], "02:00:00:00:00:10");
  // The name is still taken at this GC, and no ADD gets the wrong device.
  await collect([]);
  assert.deepEqual(names(node).toSorted(), ["dev0", "lo", String(back?.["ifname"])]);
  node.run("ip", "link", "del", "dev0");
  await collect([]);
  await cleanSoon(leaks);
});

test("host-device: an ADD that asks for a device by the name that it is owed finds it", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod);
  await attached.add();
  node.run("ip", "link", "add", "dev0", "type", "bridge");
  await attached.del();
  node.run("ip", "link", "del", "dev0");
  const next = attachment(pod);
  await next.add();
  await next.del();
  await cleanSoon(leaks);
});

test("host-device: a second pod is told who has the device, and gets it after that one's DEL", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const first = attachment(one, { containerId: "first" });
  const second = attachment(two, { containerId: "second" });
  await first.add();
  await assert.rejects(second.add(), {
    code: cniCode.noDeviceLeft,
    message: /device "dev0": interface "eth0" of container "first" on network "net" has it/,
  });
  assert.ok(names(one).includes("eth0"));
  await first.del();
  await second.add();
  // A late DEL of the former owner changes nothing.
  await first.del();
  assert.ok(names(two).includes("eth0"));
  await second.del();
  assert.ok(names(node).includes("dev0"));
});

test("host-device: a taken interface name in the pod leaves the device alone", async () => {
  const pod = lab.pod();
  pod.run("ip", "link", "add", "eth0", "type", "bridge");
  const leaks = await watch(node, pod);
  await assert.rejects(attachment(pod).add(), { code: cniCode.invalidEnvironment });
  await cleanSoon(leaks);
});

test("host-device: a failure after the move brings the device back", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const ipam = {
    ...staticIpam(["10.1.0.1/24"]),
    routes: [{ dst: "10.9.0.0/16", gw: "192.0.2.1" }],
  };
  await assert.rejects(attachment(pod, { config: { ipam } }).add(), { message: /add route/ });
  await cleanSoon(leaks);
});

test("host-device: DEL after an ADD that was cut off at any moment leaves the node as before", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod, { config: { ipam: staticIpam(["10.1.0.1/24"]) } });
  await attached.addOnly();
  await attached.del();
  await cleanSoon(leaks);
});

test("host-device: a virtual device ends with its namespace, and DEL succeeds", async () => {
  const pod = lab.pod();
  node.run("ip", "link", "add", "gone0", "type", "veth", "peer", "name", "gone1");
  const attached = attachment(pod, { config: { device: "gone0" } });
  await attached.add();
  lab.remove(pod);
  await attached.delWithoutPod();
});

test("host-device: device information is written for PCI devices only, and unknown ones are named", async () => {
  const pod = lab.pod();
  const folder = mkdtempSync(`${tmpdir()}/podnet-test-`);
  const path = `${folder}/info.json`;
  const attached = attachment(pod, { runtimeConfig: { CNIDeviceInfoFile: path } });
  await attached.add();
  assert.equal(existsSync(path), false);
  await attached.del();
  rmSync(folder, { recursive: true });
});

test("host-device: GC frees the claims of attachments that nobody knows, unless the device is away", async () => {
  const pod = lab.pod();
  const attached = attachment(pod);
  await attached.add();
  using host = Rtnetlink.open();
  const call = {
    network: "net",
    config: { type: "host-device" },
    host,
    signal: AbortSignal.timeout(5000),
  };
  const claims = claimsOfNode();
  await hostDevice.gc?.(call, []);
  assert.equal(claims.list().length, 1);
  // Its record is lost, and somebody brought the device back by hand.
  pod.run("ip", "link", "set", "eth0", "netns", node.name, "name", "dev0");
  const index = (
    JSON.parse(node.run("ip", "-j", "link", "show", "dev0")) as { ifindex: number }[]
  )[0]?.ifindex;
  const [claim] = claims.list();
  assert(claim);
  claims.release(claim.key, claim);
  claims.take(`index/${index}`, "dev0", { network: "net", containerId: "lost", ifName: "eth0" });
  await hostDevice.gc?.(call, [{ containerID: "lost", ifname: "eth0" }]);
  assert.equal(claims.list().length, 1);
  await hostDevice.gc?.({ ...call, network: "other" }, []);
  assert.equal(claims.list().length, 1);
  await hostDevice.gc?.(call, []);
  assert.equal(claims.list().length, 0);
  node.run("ip", "link", "set", "dev0", "alias", "uplink", "up");
});

const wrong: readonly (readonly [string, Shape, RegExp])[] = [
  [
    "no key",
    { config: { device: "" } },
    /set one of "device", "hwaddr", "kernelpath" and "pciBusID"/,
  ],
  [
    "an unknown device",
    { config: { device: "nope" } },
    /device "nope": no such device on this node/,
  ],
  [
    "an unknown hwaddr",
    { config: { device: "", hwaddr: "02:00:00:00:00:77" } },
    /device "02:00:00:00:00:77": no such device/,
  ],
  [
    "a wrong hwaddr",
    { config: { device: "", hwaddr: "zz" } },
    /hwaddr: "zz" is not a hardware address/,
  ],
  [
    "a kernelpath elsewhere",
    { config: { device: "", kernelpath: "/etc" } },
    /kernelpath "\/etc": must begin with \/sys\/devices\//,
  ],
  [
    "an unknown pciBusID",
    { config: { device: "", pciBusID: "0000:ff:1f.7" } },
    /pciBusID "0000:ff:1f.7": no such PCI device/,
  ],
  [
    "an unknown deviceID",
    { runtimeConfig: { deviceID: "mlx5_core.sf.99" } },
    /deviceID "mlx5_core.sf.99": no such PCI or auxiliary device/,
  ],
];
for (const [what, shape, message] of wrong) {
  test(`host-device: ${what} is refused by key`, async () => {
    const pod = lab.pod();
    const leaks = await watch(node, pod);
    await assert.rejects(attachment(pod, shape).add(), {
      code: cniCode.invalidNetworkConfig,
      message,
    });
    await cleanSoon(leaks);
  });
}

const drifts: readonly (readonly [string, readonly string[], RegExp])[] = [
  ["address", ["address", "del", "10.1.0.1/24", "dev", "eth0"], /lacks address/],
  [
    "hardware address",
    ["link", "set", "eth0", "address", "02:00:00:00:00:99"],
    /its hardware address is/,
  ],
  ["MTU", ["link", "set", "eth0", "mtu", "1000"], /its MTU is 1000, not 1400/],
  ["state", ["link", "set", "eth0", "down"], /it is down/],
];
for (const [what, command, message] of drifts) {
  test(`host-device: CHECK notices another ${what}`, async () => {
    const pod = lab.pod();
    const attached = attachment(pod, { config: { ipam: staticIpam(["10.1.0.1/24"]) } });
    await attached.add();
    await attached.check();
    pod.run("ip", ...command);
    await assert.rejects(attached.check(), { message });
    await attached.del();
  });
}

test("host-device: neighbours that knew the addresses elsewhere are told of the pod at once, in both families", async () => {
  const pod = lab.pod();
  const known = ["10.1.0.1", "fd00:1::1"];
  // The far end keeps what it knows while the device is on its way.
  for (const setting of [
    "ipv6.conf.far0.disable_ipv6=0",
    "ipv4.conf.far0.arp_evict_nocarrier=0",
    "ipv6.conf.far0.ndisc_evict_nocarrier=0",
  ]) {
    far.run("sysctl", "-qw", `net.${setting}`);
  }
  far.run("ip", "address", "add", "fd00:1::2/64", "dev", "far0", "nodad");
  for (const address of known) {
    const old = ["lladdr", "02:00:00:00:66:66", "nud", "reachable", "dev", "far0"];
    far.run("ip", "neighbour", "replace", address, ...old);
  }
  const attached = attachment(pod, {
    config: { ipam: staticIpam(["10.1.0.1/24"], ["fd00:1::1/64"]) },
  });
  await attached.add();
  for (const address of known) {
    assert.match(far.run("ip", "neighbour", "show", address), /lladdr 02:00:00:00:00:10/, address);
  }
  await attached.del();
  far.run("ip", "address", "del", "fd00:1::2/64", "dev", "far0");
});

test("host-device: addresses, master, flags and labels that the interface had on the node are there again", async () => {
  const pod = lab.pod();
  for (const command of [
    "link add br9 type bridge",
    "link set br9 up",
    "link set dev0 arp off multicast off",
    "address add 192.0.2.1/24 broadcast + dev dev0 label dev0:1",
    "address add 192.0.2.2 peer 192.0.2.3/32 dev dev0 scope link",
    "address add 192.0.2.4/24 dev dev0 noprefixroute",
    "link set dev0 master br9",
  ]) {
    node.run("ip", ...command.split(" "));
  }
  const leaks = await watch(node, pod);
  const attached = attachment(pod);
  await attached.add();
  for (const command of [
    "link set eth0 arp on multicast on dynamic on",
    "address add 192.0.2.66/24 dev eth0",
  ]) {
    pod.run("ip", ...command.split(" "));
  }
  await attached.del();
  await cleanSoon(leaks);
  for (const command of [
    "link set dev0 nomaster",
    "link set dev0 arp on multicast on",
    "address flush dev dev0",
    "link del br9",
  ]) {
    node.run("ip", ...command.split(" "));
  }
});

test("host-device: a master that went meanwhile is warned of, and a taken index does not matter", async () => {
  const pod = lab.pod();
  node.run("ip", "link", "add", "br9", "type", "bridge");
  node.run("ip", "link", "set", "dev0", "master", "br9");
  const { index } = await linkOf("dev0");
  const attached = attachment(pod);
  await attached.add();
  node.run("ip", "link", "del", "br9");
  node.run("ip", "link", "add", "squatter", "index", String(index), "type", "bridge");
  await attached.del();
  assert.match(attached.warnings.join(), /"dev0" had the master "br9", which is gone/);
  const back = await linkOf("dev0");
  assert.notEqual(back.index, index);
  assert.deepEqual([back.mac, back.mtu, back.up], ["02:00:00:00:00:10", 1400, true]);
  node.run("ip", "link", "del", "squatter");
});

test("host-device: an XDP program of the workload does not come along", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod);
  await attached.add();
  const program = loadXdpProgram();
  {
    using netns = Netns.open(pod.path);
    using rtnl = Rtnetlink.open(netns);
    const { index } = (await rtnl.getLink({ name: "eth0" })) ?? { index: 0 };
    await rtnl.changeLink(index, { xdp: { fd: program, flags: 2 } });
    assert.equal((await rtnl.getLink({ index }))?.xdp?.attached, 2);
  }
  closeSync(program);
  await attached.del();
  assert.equal((await linkOf("dev0")).xdp, undefined);
  await cleanSoon(leaks);
});

/** GC with these attachments still there. */
async function collect(valid: readonly ValidAttachment[]): Promise<void> {
  using host = Rtnetlink.open();
  const signal = AbortSignal.timeout(5000);
  await hostDevice.gc?.({ network: "net", config: { type: "host-device" }, host, signal }, valid);
}

async function linkOf(name: string): Promise<Link> {
  using host = Rtnetlink.open();
  const link = await host.getLink({ name });
  assert(link);
  return link;
}

/** bpf(BPF_PROG_LOAD) of linux/bpf.h with a program that lets every packet pass; its descriptor. */
function loadXdpProgram(): number {
  const attributes = koffi.struct({
    type: "uint32",
    count: "uint32",
    instructions: "const void *",
    licence: "const char *",
    rest: koffi.array("uint8", 104),
  });
  const bpf = koffi
    .load(null)
    .func("syscall", "long", ["long", "long", koffi.pointer(attributes), "long"]);
  const program = {
    type: 6,
    count: 2,
    // r0 = XDP_PASS; exit
    instructions: Buffer.from(`${"b700000002000000"}${"9500000000000000"}`, "hex"),
    licence: "GPL",
    rest: new Uint8Array(104),
  };
  const fd = Number(bpf(process.arch === "x64" ? 321 : 280, 5, program, 128));
  assert(fd >= 0, "bpf(BPF_PROG_LOAD)");
  return fd;
}
