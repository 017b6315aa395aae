import assert from "node:assert/strict";
import { closeSync, openSync, readSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { tap } from "../../daemon/plugins/tap.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import * as libc from "../../lib/base/libc.ts";
import { Netns } from "../../lib/base/netns.ts";
import { cniCode } from "../../lib/cni/errors.ts";
import { Attached, cleanSoon, moveIntoNode, staticIpam, watch } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { kernelState } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);

interface Shape {
  readonly config?: object;
  readonly runtimeConfig?: JsonObject;
}

function attachment(pod: Place, { config, ...others }: Shape = {}): Attached {
  return new Attached(tap, { pod, config: { type: "tap", ...config }, ...others });
}

function info(pod: Place): JsonObject {
  const link = kernelState(pod).links.find((one) => one["ifname"] === "eth0");
  assert(link);
  return (link["linkinfo"] as { info_data: JsonObject }).info_data;
}

const warmUp = attachment(lab.pod());
await warmUp.add();
await warmUp.del();

test("tap: what the pod sends reaches the process at the other end; DEL leaves nothing", async () => {
  const pod = lab.pod();
  const leaks = await watch(node, pod);
  const attached = attachment(pod, {
    config: { mtu: 1400, mac: "02:00:00:00:00:05", ipam: staticIpam(["10.1.0.1/24"]) },
  });
  const result = await attached.add();
  assert.deepEqual(result, {
    interfaces: [{ name: "eth0", mac: "02:00:00:00:00:05", mtu: 1400, sandbox: pod.path }],
    ips: [{ address: "10.1.0.1/24", interface: 0 }],
    routes: [],
    dns: {},
  });
  using netns = Netns.open(pod.path);
  const fd = netns.run(() => {
    const opened = openSync("/dev/net/tun", "r+");
    const request = Buffer.alloc(40);
    request.write("eth0");
    // IFF_TAP | IFF_NO_PI, as a virtual machine's monitor does.
    request.writeUInt16LE(0x1002, 16);
    libc.ioctl(opened, 0x400454ca, request);
    return opened;
  });
  netns.close();
  await delay(100);
  assert.throws(() => pod.run("ping", "-c1", "-W1", "10.1.0.9"));
  assert.ok(receivedArp(fd, "10.1.0.9"));
  await attached.check();
  closeSync(fd);
  await attached.del();
  await cleanSoon(leaks);
});

/** Reads frames until one asks for the address (ethertype ARP, target in the last four bytes). */
function receivedArp(fd: number, address: string): boolean {
  const target = Buffer.from(address.split(".").map(Number));
  for (let frames = 0; frames < 50; frames += 1) {
    const frame = Buffer.alloc(2048);
    const length = readSync(fd, frame);
    if (frame.readUInt16BE(12) === 0x0806 && frame.subarray(38, 42).equals(target)) return true;
    if (length <= 0) return false;
  }
  return false;
}

const shapes: readonly (readonly [string, object, JsonObject])[] = [
  ["neither owner nor group", {}, { type: "tap", pi: false, vnet_hdr: false, persist: true }],
  ["an owner", { owner: 0 }, { user: "root", pi: false, vnet_hdr: false }],
  [
    "owner and group",
    { owner: 0, group: 0 },
    { user: "root", group: "root", pi: true, vnet_hdr: true },
  ],
  ["several queues", { multiQueue: true }, { multi_queue: true, pi: false }],
];
for (const [what, config, expected] of shapes) {
  test(`tap: with ${what} the kernel has the reference's flags`, async () => {
    const pod = lab.pod();
    const attached = attachment(pod, { config });
    await attached.add();
    const found = info(pod);
    for (const [key, value] of Object.entries(expected)) assert.equal(found[key], value, key);
    await attached.check();
    await attached.del();
  });
}

test("tap: as a port of a bridge in the sandbox, which CHECK verifies", async () => {
  const pod = lab.pod();
  await assert.rejects(attachment(pod, { config: { bridge: "br0" } }).add(), {
    code: cniCode.invalidNetworkConfig,
    message: /bridge "br0": no such bridge in the sandbox/,
  });
  pod.run("ip", "link", "add", "br0", "type", "bridge");
  const attached = attachment(pod, {
    config: { bridge: "br0" },
    runtimeConfig: { mac: "02:00:00:00:00:06" },
  });
  assert.equal((await attached.add()).interfaces[0]?.mac, "02:00:00:00:00:06");
  await attached.check();
  pod.run("ip", "link", "set", "eth0", "nomaster");
  await assert.rejects(attached.check(), { message: /it is not a port of bridge "br0"/ });
  await attached.del();
});

test("tap: an interface that was there before is not touched", async () => {
  const pod = lab.pod();
  pod.run("ip", "tuntap", "add", "eth0", "mode", "tap");
  const leaks = await watch(node, pod);
  await assert.rejects(attachment(pod).add(), { code: cniCode.invalidEnvironment });
  await cleanSoon(leaks);
});

const wrong: readonly (readonly [string, object, RegExp])[] = [
  ["mtu", { mtu: 5 }, /mtu: must be 0, or 68 to 65521/],
  ["mac", { mac: "zz" }, /mac: "zz" is not a hardware address/],
  ["owner", { owner: "root" }, /owner: /],
  [
    "selinuxContext",
    { selinuxContext: "a:b:c:s0" },
    /selinuxContext "a:b:c:s0": this node does not use SELinux/,
  ],
];
for (const [key, config, message] of wrong) {
  test(`tap: a wrong ${key} is refused by name, and nothing is left`, async () => {
    const pod = lab.pod();
    const leaks = await watch(node, pod);
    await assert.rejects(attachment(pod, { config }).add(), {
      code: cniCode.invalidNetworkConfig,
      message,
    });
    await cleanSoon(leaks);
  });
}
