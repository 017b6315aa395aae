import { after } from "node:test";
import type { JsonObject } from "../../../lib/base/json.ts";
import { compareWithReference } from "../../conformance/differential/compare.ts";
import { dual, fixed } from "../../conformance/differential/type-cases.ts";
import { attachment, type Case, endPodnetSide } from "../../conformance/differential/world.ts";

// Beside the reference's executables, for the drivers that a machine may lack. Few cases: everything is slow in here.
after(endPodnetSide);

const uplink =
  "ip link add dev0 address 0a:00:00:00:00:10 type dummy; ip link set dev0 mtu 1400 up";
const byDefaultRoute = `${uplink}; ip address add 192.0.2.9/24 dev dev0; ip route add default via 192.0.2.1`;
const inPod =
  "ip -n $POD link add dev0 address 0a:00:00:00:00:10 type dummy; ip -n $POD link set dev0 up";
const addAndDel = attachment.filter(({ verb }) => verb !== "CHECK");
const one = fixed(["10.1.0.2/24"]);

/** One case a bad value, on a configuration that works without it. */
function refused(
  base: Pick<Case, "type" | "prepare" | "config">,
  values: readonly (readonly [key: string, value: unknown])[],
): Case[] {
  return values.map(([key, value]) => ({
    ...base,
    outcome: "fails",
    name: `a wrong ${key}`,
    config: { ...base.config, [key]: value } as JsonObject,
    steps: attachment.slice(0, 1),
    keys: [key],
  }));
}

const ipvlan: readonly Case[] = [
  {
    type: "ipvlan",
    outcome: "works",
    name: "mode, an mtu above the master's and addresses of both families",
    prepare: uplink,
    config: { master: "dev0", mode: "l3", mtu: 1450, ipam: dual, dns: { domain: "example.org" } },
    keys: ["master", "mode", "mtu"],
  },
  {
    type: "ipvlan",
    outcome: "works",
    name: "the interface of the default route",
    prepare: byDefaultRoute,
    config: { ipam: one },
    steps: addAndDel,
    keys: [],
  },
  {
    type: "ipvlan",
    outcome: "works",
    name: "linkInContainer",
    prepare: inPod,
    config: { master: "dev0", linkInContainer: true, ipam: one },
    steps: addAndDel,
    keys: ["linkInContainer"],
  },
  ...refused({ type: "ipvlan", prepare: byDefaultRoute, config: { ipam: one } }, [
    ["master", "nope"],
    ["mode", "l4"],
    ["mtu", "many"],
    ["linkInContainer", "yes"],
  ]),
];

const vlan: readonly Case[] = [
  {
    type: "vlan",
    outcome: "works",
    name: "mtu and routes",
    prepare: uplink,
    config: {
      master: "dev0",
      vlanId: 100,
      mtu: 1300,
      ipam: { ...fixed(["10.1.0.2/24", "10.1.0.1"]), routes: [{ dst: "0.0.0.0/0" }] },
    },
    keys: ["master", "vlanId", "mtu"],
  },
  {
    type: "vlan",
    outcome: "works",
    name: "linkInContainer",
    prepare: inPod,
    config: { master: "dev0", vlanId: 5, linkInContainer: true, ipam: one },
    steps: addAndDel,
    keys: ["linkInContainer"],
  },
  ...refused({ type: "vlan", prepare: uplink, config: { master: "dev0", vlanId: 5, ipam: one } }, [
    ["master", "nope"],
    ["vlanId", 5000],
    ["mtu", 1401],
    ["linkInContainer", "yes"],
  ]),
];

const dummy: readonly Case[] = [
  {
    type: "dummy",
    outcome: "works",
    name: "addresses of both families",
    config: { ipam: dual },
    keys: ["ipam"],
  },
  ...refused({ type: "dummy", config: {} }, [
    ["ipam", { type: "static", addresses: [{ address: "none" }] }],
  ]),
];

const onEth0 = {
  type: "vrf",
  prepare:
    "ip -n $POD link add eth0 address 0a:00:00:00:00:02 type dummy; ip -n $POD link set eth0 up; ip -n $POD address add 10.1.0.2/24 dev eth0",
  config: {
    vrfname: "blue",
    prevResult: {
      cniVersion: "1.1.0",
      interfaces: [{ name: "eth0", mac: "0a:00:00:00:00:02", sandbox: "$NETNS" }],
      ips: [{ address: "10.1.0.2/24", interface: 0 }],
    },
  },
} satisfies Pick<Case, "type" | "prepare" | "config">;

const vrf: readonly Case[] = [
  {
    ...onEth0,
    outcome: "works",
    name: "a table",
    config: { ...onEth0.config, table: 77 },
    steps: attachment,
    keys: ["vrfname", "table"],
  },
  { ...onEth0, outcome: "works", name: "a table of its own", steps: attachment, keys: ["vrfname"] },
  ...refused(onEth0, [
    ["vrfname", "longer-than-names-are"],
    ["table", "main"],
  ]),
];

compareWithReference("VM ipvlan: ", ipvlan, { keys: ["master", "mode", "mtu", "linkInContainer"] });
compareWithReference("VM vlan: ", vlan, {
  keys: ["master", "vlanId", "mtu", "linkInContainer"],
  required: ["master"],
});
compareWithReference("VM dummy: ", dummy, { keys: ["ipam"], required: ["ipam"] });
compareWithReference("VM vrf: ", vrf, { keys: ["vrfname", "table"], required: ["vrfname"] });
