import assert from "node:assert/strict";
import { test } from "node:test";
import { vlan } from "../../../daemon/plugins/vlan.ts";
import { Attached, moveIntoNode, staticIpam } from "../../helpers/attached.ts";
import { Lab, type Place } from "../../helpers/lab.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
// Two uplinks of the node on one bridge that lets tagged frames pass, as two nodes on a switch.
for (const name of ["up0", "up1"]) {
  node.run("ip", "link", "add", name, "type", "veth", "peer", "name", `${name}p`);
  node.run("ip", "link", "set", name, "up");
}
node.run("ip", "link", "add", "switch", "type", "bridge", "vlan_filtering", "1");
node.run("ip", "link", "set", "switch", "up");
for (const port of ["up0p", "up1p"]) {
  node.run("ip", "link", "set", port, "master", "switch", "up");
  node.run("bridge", "vlan", "add", "vid", "100", "dev", port);
}

function attachment(pod: Place, config: object, ifName = "eth0"): Attached {
  return new Attached(vlan, { pod, ifName, config: { type: "vlan", master: "up0", ...config } });
}

test("vlan: pods in one VLAN of a filtering bridge reach each other, another VLAN does not", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  const first = attachment(one, {
    vlanId: 100,
    mtu: 1400,
    ipam: staticIpam(["10.1.0.1/24"], ["fd00:1::1/64"]),
    dns: { domain: "example.org" },
  });
  const second = attachment(two, {
    master: "up1",
    vlanId: 100,
    ipam: staticIpam(["10.1.0.2/24"], ["fd00:1::2/64"]),
  });
  const third = attachment(
    two,
    { master: "up1", vlanId: 200, ipam: staticIpam(["10.2.0.2/24"]) },
    "net1",
  );
  const fourth = attachment(one, { vlanId: 200, ipam: staticIpam(["10.2.0.1/24"]) }, "net1");
  const [result] = await Promise.all([first.add(), second.add(), third.add(), fourth.add()]);
  assert.deepEqual(result.dns, { domain: "example.org" });
  assert.equal(result.interfaces[0]?.mtu, 1400);
  one.run("ping", "-c1", "-W3", "10.1.0.2");
  one.run("ping", "-6", "-c1", "-W3", "fd00:1::2");
  assert.throws(() => one.run("ping", "-c1", "-W1", "10.2.0.2"));
  await first.check();
  one.run("ip", "link", "set", "eth0", "mtu", "1300");
  await assert.rejects(first.check(), { message: /its MTU is 1300, not 1400/ });
  await Promise.all([first.del(), second.del(), third.del(), fourth.del()]);
  assert.equal(one.run("ip", "-o", "link").trim().split("\n").length, 1);
});

test("vlan: 802.1ad outside and 802.1Q inside make QinQ", async () => {
  const [one, two] = [lab.pod(), lab.pod()];
  node.run("ip", "link", "add", "qa", "type", "veth", "peer", "name", "qb");
  node.run("ip", "link", "set", "qa", "up");
  node.run("ip", "link", "set", "qb", "up");
  const outer = (pod: Place, master: string) =>
    attachment(
      pod,
      { master, vlanId: 10, vlanProto: "802.1ad", ipam: staticIpam(["10.3.0.1/32"]) },
      "outer",
    );
  const inner = (pod: Place, address: string) =>
    attachment(pod, {
      master: "outer",
      linkInContainer: true,
      vlanId: 20,
      ipam: staticIpam([address]),
    });
  const outers = [outer(one, "qa"), outer(two, "qb")];
  const inners = [inner(one, "10.4.0.1/24"), inner(two, "10.4.0.2/24")];
  await Promise.all(outers.map((one) => one.add()));
  await Promise.all(inners.map((one) => one.add()));
  assert.match(one.run("ip", "-d", "link", "show", "outer"), /vlan protocol 802\.1ad id 10/);
  one.run("ping", "-c1", "-W3", "10.4.0.2");
  await inners[0]?.check();
  await outers[0]?.check();
  await Promise.all(inners.map((one) => one.del()));
  await Promise.all(outers.map((one) => one.del()));
});

const wrong: readonly (readonly [object, RegExp])[] = [
  [{ vlanId: 4095 }, /vlanId: must be 0 to 4094/],
  [{ vlanId: 5, master: undefined }, /master: must name the interface to make the VLAN on/],
  [{ vlanId: 5, mtu: 9000 }, /mtu 9000: must be 0 to 1500, the MTU of master "up0"/],
  [{ vlanId: 5, vlanProto: "802.3" }, /"802.3" is not a VLAN protocol/],
  [{ vlanId: 5, ipam: undefined }, /vlan needs addresses: set "ipam"/],
];

test("vlan: wrong configurations are refused by key", async () => {
  const pod = lab.pod();
  for (const [config, message] of wrong) {
    const attached = attachment(pod, { ipam: staticIpam(["10.1.0.1/24"]), ...config });
    await assert.rejects(attached.add(), { code: 7, message });
  }
  assert.equal(pod.run("ip", "-o", "link").trim().split("\n").length, 1);
});
