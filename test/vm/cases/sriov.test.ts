import assert from "node:assert/strict";
import { readlinkSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { readDeviceInfo } from "../../../daemon/plugins/devices/device-info.ts";
import { bindDriver } from "../../../daemon/plugins/devices/pci.ts";
import { hostDevice } from "../../../daemon/plugins/host-device.ts";
import { cniCode } from "../../../lib/cni/errors.ts";
import { Attached, staticIpam } from "../../helpers/attached.ts";
import {
  address,
  attachment,
  eventually,
  lab,
  netdev,
  pf,
  sh,
  snapshot,
  withoutTimes,
} from "../igb.ts";

test("sriov: a VF by deviceID serves the pod with all that igb can set, and comes back as it was", async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(0));
  const file = `${lab.folder()}/devinfo/net.json`;
  const attached = attachment(pod, 0, {
    config: {
      mac: "02:00:00:00:05:01",
      mtu: 1400,
      trust: "on",
      spoofchk: "off",
      max_tx_rate: 100,
      logLevel: "debug",
      ipam: staticIpam(["10.5.0.1/24"], ["fd00:5::1/64"]),
    },
    runtimeConfig: { CNIDeviceInfoFile: file },
  });
  const result = await attached.add();
  assert.deepEqual(result.interfaces, [
    { name: "eth0", mac: "02:00:00:00:05:01", mtu: 1400, sandbox: pod.path, pciID: address(0) },
  ]);
  assert.deepEqual(readDeviceInfo(file), {
    type: "pci",
    version: "1.1.0",
    pci: {
      "pci-address": address(0),
      "pf-pci-address": basename(readlinkSync(`/sys/class/net/${pf}/device`)),
    },
  });
  const seen = sh(`ip -d link show ${pf}`);
  assert.match(seen, /vf 0 .*02:00:00:00:05:01.*max_tx_rate 100Mbps.*spoof checking off.*trust on/);
  pod.run("ping", "-c2", "-W3", "10.5.0.100");
  await attached.check();
  sh(`ip link set ${pf} vf 0 spoofchk on`);
  await assert.rejects(attached.check(), {
    message: /VF 0 of "eth0": spoofCheck is true, not false/,
  });
  await attached.del();
  assert.deepEqual(withoutTimes(snapshot(0)), before);
  assert.equal(readDeviceInfo(file), undefined);
});

test("sriov: VFs in one VLAN reach each other, others do not", async () => {
  const [one, two, three] = [lab.pod(), lab.pod(), lab.pod()];
  const attached = [
    attachment(one, 0, { config: { vlan: 100, vlanQoS: 3, ipam: staticIpam(["10.6.0.1/24"]) } }),
    attachment(two, 1, { config: { vlan: 100, ipam: staticIpam(["10.6.0.2/24"]) } }),
    attachment(three, 2, { config: { vlan: 200, ipam: staticIpam(["10.6.0.3/24"]) } }),
  ];
  for (const pod of attached) await pod.add();
  assert.match(sh(`ip -d link show ${pf}`), /vf 0 .*vlan 100, qos 3/);
  one.run("ping", "-c2", "-W3", "10.6.0.2");
  assert.throws(() => one.run("ping", "-c1", "-W1", "10.6.0.3"));
  for (const pod of attached) await pod.del();
  assert.doesNotMatch(sh(`ip -d link show ${pf}`), /vlan/);
});

test("sriov: two pods want one VF: the second is told who has it; a hostile workload's traces vanish", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const before = withoutTimes(snapshot(1));
  const first = attachment(one, 1, { containerId: "first", config: { trust: "on" } });
  const second = attachment(two, 1, { containerId: "second" });
  await first.add();
  await assert.rejects(second.add(), {
    code: cniCode.noDeviceLeft,
    message: /interface "eth0" of container "first" on network "net" has it/,
  });
  for (const command of [
    "address add 192.0.2.6/24 dev eth0",
    "link set eth0 down",
    "link set eth0 name evil address 02:00:00:00:66:66 mtu 900 txqueuelen 3 alias pwned group 9 promisc on",
    "link add br0 type bridge",
    "link set evil master br0 up",
    "link property add dev evil altname worse",
  ]) {
    one.run("ip", ...command.split(" "));
  }
  await first.del();
  assert.deepEqual(withoutTimes(snapshot(1)), before);
  await second.add();
  await second.del();
});

test("sriov: when the namespace is gone the kernel returns the VF under its renamed name, and DEL repairs it", async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(0));
  const attached = attachment(pod, 0, { config: { mac: "02:00:00:00:05:02" } });
  await attached.add();
  pod.run("ip", "link", "set", "eth0", "down");
  pod.run("ip", "link", "set", "eth0", "name", "evil");
  lab.remove(pod);
  await attached.delWithoutPod();
  // Within its namespace a link keeps the index that it arrived with.
  const withoutIndex = (state: object) => JSON.stringify(state).replaceAll(/"ifindex":\d+,/g, "");
  assert.equal(withoutIndex(withoutTimes(snapshot(0))), withoutIndex(before));
});

test("sriov: a VF that nobody holds but that is not there is on its way back: try again", async () => {
  const [away, pod] = [lab.pod(), lab.pod()];
  const name = netdev(2);
  sh(`ip link set ${name} netns ${away.name}`);
  await assert.rejects(attachment(pod, 2).add(), {
    code: cniCode.tryAgainLater,
    message: /on its way back/,
  });
  away.run("ip", "link", "set", name, "netns", "1");
});

test("sriov: a VF of vfio-pci gets its settings and no interface; a driver that was changed is put back", async () => {
  const pod = lab.pod();
  sh("modprobe vfio-pci");
  const device = { bus: "pci", name: address(2) };
  bindDriver(device, "vfio-pci");
  const attached = attachment(pod, 2, {
    config: { mac: "02:00:00:00:05:03", vlan: 300, ipam: staticIpam(["10.5.0.3/24"]) },
  });
  const result = await attached.add();
  assert.deepEqual(result, {
    interfaces: [{ name: "eth0", mac: "02:00:00:00:05:03", sandbox: pod.path, pciID: address(2) }],
    ips: [{ address: "10.5.0.3/24", interface: 0 }],
    routes: [],
    dns: {},
  });
  assert.match(sh(`ip -d link show ${pf}`), /vf 2 .*02:00:00:00:05:03.*vlan 300/);
  await attached.check();
  bindDriver(device, "igbvf");
  await assert.rejects(attached.check(), { message: /has driver "igbvf"/ });
  await attached.del();
  assert.equal(basename(readlinkSync(`/sys/bus/pci/devices/${address(2)}/driver`)), "vfio-pci");
  assert.doesNotMatch(sh(`ip -d link show ${pf}`), /vlan 300/);
  const dpdk = new Attached(hostDevice, {
    pod,
    config: { type: "host-device", pciBusID: address(2) },
  });
  assert.deepEqual((await dpdk.add()).interfaces, [
    { name: "eth0", sandbox: pod.path, pciID: address(2) },
  ]);
  await dpdk.del();
  bindDriver(device, "igbvf");
  await eventually("the interface", () => netdev(2) !== "");
});

test("sriov: what igb refuses is named, and the VF is as before", async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(0));
  for (const [config, message] of [
    [{ min_tx_rate: 10 }, /set minTxRate 10 of VF 0 of "eth0".*EINVAL/],
    [{ link_state: "enable", vlan: 5 }, /set linkState 1 of VF 0 of "eth0".*EOPNOTSUPP/],
    [{ vlan: 5, vlanProto: "802.1AD" }, /set vlan 5, qos 0, vlanProtocol 34984 of VF 0/],
  ] as const) {
    await assert.rejects(attachment(pod, 0, { config }).add(), { code: 7, message });
  }
  assert.deepEqual(withoutTimes(snapshot(0)), before);
});

test("sriov: a GUID of InfiniBand is refused on an Ethernet card, and a VF that the admin changed is a drift", async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(0));
  await assert.rejects(
    attachment(pod, 0, { runtimeConfig: { infinibandGUID: "02:00:00:00:00:00:00:01" } }).add(),
    { code: cniCode.capabilityUnsupported, message: /physical function "eth0" is an Ethernet/ },
  );
  const attached = attachment(pod, 0);
  await attached.add();
  await attached.check();
  for (const [set, back, says] of [
    ["vlan 7", "vlan 0", /vlan is 7, not 0/],
    ["trust on", "trust off", /trust is true, not false/],
    ["spoofchk off", "spoofchk on", /spoofCheck is false, not true/],
    ["max_tx_rate 50", "max_tx_rate 0", /maxTxRate is 50, not 0/],
  ] as const) {
    sh(`ip link set ${pf} vf 0 ${set}`);
    await assert.rejects(attached.check(), { message: says });
    sh(`ip link set ${pf} vf 0 ${back}`);
  }
  await attached.del();
  assert.deepEqual(withoutTimes(snapshot(0)), before);
});

test("sriov: a card that takes its VFs away while a pod has one leaves a DEL that succeeds, and a VF that can be given again", async () => {
  const pod = lab.pod();
  const attached = attachment(pod, 1);
  await attached.add();
  const numVfs = `/sys/class/net/${pf}/device/sriov_numvfs`;
  sh(`echo 0 >${numVfs}`);
  await assert.rejects(attached.check(), { name: "CniError" });
  await attached.del();
  sh(`echo 3 >${numVfs}`);
  await eventually("the interface", () => netdev(1) !== "");
  const next = attachment(lab.pod(), 1);
  await next.add();
  await next.check();
  await next.del();
});

test("host-device: a VF by deviceID, pciBusID or kernelpath, and back as it was", async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(0));
  const path = sh(`readlink -f /sys/bus/pci/devices/${address(0)}`).trim();
  for (const [config, runtimeConfig] of [
    [{}, { deviceID: address(0) }],
    [{ pciBusID: address(0) }, {}],
    [{ kernelpath: path }, {}],
  ] as const) {
    const attached = new Attached(hostDevice, {
      pod,
      config: { type: "host-device", ...config },
      runtimeConfig,
    });
    const result = await attached.add();
    assert.equal(result.interfaces[0]?.pciID, address(0));
    pod.run("ip", "link", "set", "eth0", "down");
    pod.run("ip", "link", "set", "eth0", "name", "evil");
    await attached.del();
    assert.deepEqual(withoutTimes(snapshot(0)), before);
  }
});
