import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { staticIpam } from "../../helpers/attached.ts";
import type { Place } from "../../helpers/lab.ts";
import {
  address,
  attachment,
  carrier,
  eventually,
  lab,
  netdev,
  pf,
  sh,
  snapshot,
  withoutTimes,
} from "../igb.ts";

// What happens to a VF on the side of the node, while a pod has it or before.

function macOf(place: Pick<Place, "run">, name: string): string {
  return JSON.parse(place.run("ip", "-j", "link", "show", name))[0].address;
}

function adminMac(vf: number): string {
  const [found] = JSON.parse(sh(`ip -j -d link show ${pf}`));
  return found.vfinfo_list.find((one: { vf: number }) => one.vf === vf).address;
}

function reaches(pod: Place, target: string): boolean {
  try {
    pod.run("ping", "-c1", "-W1", target);
    return true;
  } catch {
    return false;
  }
}

test("sriov: a VF without an administrative MAC keeps its random one in the pod, and has it again after a pod with another", async () => {
  const pod = lab.pod();
  const name = netdev(0);
  const before = withoutTimes(snapshot(0));
  const own = JSON.parse(sh(`ip -j link show ${name}`))[0].address as string;
  const NET_ADDR_RANDOM = "1";
  assert.equal(
    readFileSync(`/sys/class/net/${name}/addr_assign_type`, "utf8").trim(),
    NET_ADDR_RANDOM,
  );
  const admin = adminMac(0);
  const plain = attachment(pod, 0);
  assert.equal((await plain.add()).interfaces[0]?.mac, own);
  assert.equal(macOf(pod, "eth0"), own);
  assert.equal(adminMac(0), admin);
  await plain.check();
  await plain.del();
  assert.deepEqual(withoutTimes(snapshot(0)), before);
  const asked = attachment(pod, 0, { config: { mac: "02:00:00:00:05:09" } });
  await asked.add();
  assert.equal(macOf(pod, "eth0"), "02:00:00:00:05:09");
  assert.equal(adminMac(0), "02:00:00:00:05:09");
  await asked.del();
  assert.deepEqual(withoutTimes(snapshot(0)), before);
});

test("sriov: a reset of the physical function leaves a VF with its pod, its settings and its traffic", async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(0));
  const attached = attachment(pod, 0, {
    config: { mac: "02:00:00:00:05:0a", ipam: staticIpam(["10.5.0.1/24"]) },
  });
  await attached.add();
  sh(`ip link set ${pf} down`);
  sh(`ip link set ${pf} up`);
  await carrier();
  await attached.check();
  assert.equal(adminMac(0), "02:00:00:00:05:0a");
  assert.equal(macOf(pod, "eth0"), "02:00:00:00:05:0a");
  await eventually("an answer", () => reaches(pod, "10.5.0.100"));
  await attached.del();
  assert.deepEqual(withoutTimes(snapshot(0)), before);
});

test("sriov: what the node changed of a VF while a pod had it is put back with what ADD changed", async () => {
  const pod = lab.pod();
  const set = (what: string) => sh(`ip link set ${pf} vf 1 ${what}`);
  const own = [
    "mac 02:00:00:00:01:01",
    "vlan 12 qos 2",
    "trust on",
    "spoofchk off",
    "max_tx_rate 30",
  ];
  for (const what of own) set(what);
  const before = withoutTimes(snapshot(1));
  const attached = attachment(pod, 1, { config: { vlan: 13, vlanQoS: 1, max_tx_rate: 40 } });
  await attached.add();
  const changed = [
    "mac 02:00:00:00:01:02",
    "vlan 14 qos 5",
    "trust off",
    "spoofchk on",
    "max_tx_rate 50",
  ];
  for (const what of changed) set(what);
  await assert.rejects(attached.check(), { message: /VF 1 of|hardware address is/ });
  await attached.del();
  assert.deepEqual(withoutTimes(snapshot(1)), before);
  for (const what of [
    "mac 00:00:00:00:00:00",
    "vlan 0",
    "trust off",
    "spoofchk on",
    "max_tx_rate 0",
  ])
    set(what);
});

// The last one: a function that is reset while it is down hangs the guest.
test("sriov: a VF that is reset while a pod has it keeps its settings, and comes back as it was", {
  timeout: 120_000,
}, async () => {
  const pod = lab.pod();
  const before = withoutTimes(snapshot(2));
  const attached = attachment(pod, 2, { config: { mac: "02:00:00:00:05:0b", trust: "on" } });
  await attached.add();
  assert.match(pod.run("ip", "link", "show", "eth0"), /[<,]UP[,>]/);
  sh(`echo 1 >/sys/bus/pci/devices/${address(2)}/reset`);
  await attached.check();
  assert.equal(macOf(pod, "eth0"), "02:00:00:00:05:0b");
  await attached.del();
  assert.deepEqual(withoutTimes(snapshot(2)), before);
});
