import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { createTuning } from "../../daemon/plugins/tuning.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import { Attached, moveIntoNode } from "../helpers/attached.ts";
import { Lab } from "../helpers/lab.ts";
import { kernelState } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
const pod = lab.pod();
const noList = `${lab.folder()}/none`;
node.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "eth0", "netns", pod.name);
pod.run("ip", "link", "set", "eth0", "up");
pod.run("ip", "address", "add", "10.8.0.2/24", "dev", "eth0");
pod.run("ip", "route", "add", "default", "via", "10.8.0.1");
const prevResult: CniResult = {
  interfaces: [
    { name: "v0", mac: "02:00:00:00:00:aa" },
    { name: "eth0", mac: "02:00:00:00:00:bb", sandbox: pod.path },
  ],
  ips: [],
  routes: [],
  dns: {},
};

function attach(
  config: JsonObject,
  options: { runtimeConfig?: JsonObject; cniArgs?: Record<string, string>; list?: string } = {},
): Attached {
  const { list, ...others } = options;
  return new Attached(createTuning(list ?? noList), {
    pod,
    config: { type: "tuning", ...config },
    prevResult,
    ...others,
  });
}

function sysctl(name: string): string {
  return pod.run("sysctl", "-n", name).trim();
}

/** Links, addresses and routes of the pod; the sysctls that these tests set. */
function podState(): unknown {
  return kernelState(pod);
}

test("tuning: every property is set, found by CHECK and given back; routes survive; sysctls stay with the pod", async () => {
  const before = podState();
  const attached = attach({
    dataDir: "/nowhere",
    sysctl: { "net.ipv4.conf.IFNAME.arp_notify": "1", "net/core/somaxconn": "500" },
    mac: "02:00:00:00:00:05",
    mtu: 1400,
    txQLen: 77,
    promisc: true,
    allmulti: true,
  });
  const result = await attached.add();
  assert.deepEqual(
    result.interfaces.map(({ mac }) => mac),
    ["02:00:00:00:00:aa", "02:00:00:00:00:05"],
  );
  const [link] = JSON.parse(pod.run("ip", "-j", "link", "show", "eth0"));
  assert.equal(link.address, "02:00:00:00:00:05");
  assert.equal(link.mtu, 1400);
  assert.equal(link.txqlen, 77);
  assert.ok(
    link.flags.includes("PROMISC") && link.flags.includes("ALLMULTI") && link.flags.includes("UP"),
  );
  assert.match(pod.run("ip", "route"), /default via 10.8.0.1/);
  assert.deepEqual(
    [sysctl("net.ipv4.conf.eth0.arp_notify"), sysctl("net.core.somaxconn")],
    ["1", "500"],
  );
  await attached.check();
  await attached.del();
  await attached.del();
  assert.deepEqual(podState(), before);
  assert.equal(sysctl("net.core.somaxconn"), "500");
});

test("tuning: CHECK knows how the kernel spells a value; an empty one is written, not left out", async () => {
  const reserved = "net.ipv4.ip_local_reserved_ports";
  const range = "net.ipv4.ip_local_port_range";
  const attached = attach({
    sysctl: { [reserved]: "8080,8081,9000", [range]: "20000 30000" },
  });
  await attached.add();
  assert.deepEqual([sysctl(reserved), sysctl(range)], ["8080-8081,9000", "20000\t30000"]);
  await attached.check();
  pod.run("sysctl", "-qw", `${reserved}=8080`);
  await assert.rejects(attached.check(), /ip_local_reserved_ports is "8080" instead of/);
  await attached.del();

  const emptied = attach({ sysctl: { [reserved]: "" } });
  await emptied.add();
  assert.equal(sysctl(reserved), "");
  await emptied.check();
  await emptied.del();

  // One can be read only after it was written, the other never.
  const secret = "2001:db8::1";
  const odd = attach({
    sysctl: { "net.ipv6.conf.IFNAME.stable_secret": secret, "net.ipv4.route.flush": "1" },
  });
  await odd.add();
  assert.equal(
    sysctl("net.ipv6.conf.eth0.stable_secret"),
    "2001:0db8:0000:0000:0000:0000:0000:0001",
  );
  await odd.check();
  await odd.del();

  const noNumber = attach({ sysctl: { "net.core.somaxconn": "" }, mtu: 1400 });
  await assert.rejects(noNumber.add(), /set net\/core\/somaxconn to "": /);
});

test("tuning: CHECK finds each kind of drift", async () => {
  const config = {
    sysctl: { "net.core.somaxconn": "501" },
    mac: "02:00:00:00:00:05",
    mtu: 1400,
    txQLen: 77,
    promisc: true,
    allmulti: false,
  };
  const breaks: readonly [string, RegExp][] = [
    ["sysctl -qw net.core.somaxconn=9", /net\/core\/somaxconn is "9" instead of "501"/],
    ["ip link set eth0 address 02:00:00:00:00:06", /mac of interface "eth0" is 02:00:00:00:00:06/],
    ["ip link set eth0 mtu 1300", /mtu .* is 1300 instead of 1400/],
    ["ip link set eth0 txqueuelen 5", /txQLen .* is 5/],
    ["ip link set eth0 promisc off", /promisc .* is false/],
    ["ip link set eth0 allmulticast on", /allmulti .* is true/],
  ];
  for (const [command, message] of breaks) {
    const attached = attach(config);
    await attached.add();
    await attached.check();
    pod.run("sh", "-c", command);
    await assert.rejects(attached.check(), { code: 999, message });
    await attached.del();
  }
});

test("tuning: args.cni.mac wins over runtimeConfig, that over CNI_ARGS and the key", async () => {
  const mac = async (attached: Attached) => {
    const { interfaces } = await attached.add();
    await attached.del();
    return interfaces[1]?.mac;
  };
  const key = { mac: "02:00:00:00:00:01" };
  const cniArgs = { MAC: "02:00:00:00:00:02" };
  const runtimeConfig = { mac: "02:00:00:00:00:03" };
  assert.equal(await mac(attach(key)), "02:00:00:00:00:01");
  assert.equal(await mac(attach(key, { cniArgs })), "02:00:00:00:00:02");
  assert.equal(await mac(attach(key, { cniArgs, runtimeConfig })), "02:00:00:00:00:03");
  assert.equal(
    await mac(
      attach({ ...key, args: { cni: { mac: "02:00:00:00:00:04" } } }, { cniArgs, runtimeConfig }),
    ),
    "02:00:00:00:00:04",
  );
});

test("tuning: the node's list of sysctls decides, by regular expressions", async () => {
  const list = `${lab.folder()}/allowlist.conf`;
  writeFileSync(list, "# of this node\n^net\\.core\\.\n\n^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$\n");
  await attach(
    { sysctl: { "net.core.somaxconn": "502", "net.ipv4.conf.IFNAME.arp_notify": "0" } },
    { list },
  ).add();
  assert.equal(sysctl("net.core.somaxconn"), "502");
  await assert.rejects(
    attach(
      { sysctl: { "net.ipv4.ip_forward": "1", "net.core.somaxconn": "503" } },
      { list },
    ).addOnly(),
    {
      code: 7,
      message: `set sysctl "net.ipv4.ip_forward" of network "net": not in the node's list "${list}"`,
    },
  );
  assert.equal(sysctl("net.core.somaxconn"), "502");
  writeFileSync(list, "(\n");
  await assert.rejects(attach({ sysctl: { "net.core.somaxconn": "1" } }, { list }).addOnly(), {
    code: 7,
    message: /"\("/,
  });
});

test("tuning: wrong values are refused and change nothing", async () => {
  const before = podState();
  for (const [config, message] of [
    [{ sysctl: { "kernel.hostname": "x" } }, /sysctl\.kernel\.hostname/],
    [{ sysctl: { "net/../kernel/hostname": "x" } }, /only keys of "net"/],
    [
      {
        sysctl: { "net.core.somaxconn": 1 },
        mac: "xx",
        mtu: -5,
        txQLen: -1,
        promisc: "yes",
        allmulti: 1,
      },
      /sysctl.*mac.*"xx".*promisc.*mtu.*txQLen.*allmulti/,
    ],
  ] as const) {
    await assert.rejects(attach(config as JsonObject).addOnly(), { code: 7, message });
  }
  await assert.rejects(attach({ mtu: 70_000 }).add(), {
    code: 5,
    message: /set mtu 70000 of interface "eth0" of network "net"/,
  });
  await assert.rejects(attach({ sysctl: { "net.none": "1" } }).add(), {
    code: 5,
    message: /net\/none/,
  });
  assert.deepEqual(podState(), before);
});
