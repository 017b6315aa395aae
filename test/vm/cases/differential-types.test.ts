import { after } from "node:test";
import { compareWithReference } from "../../conformance/differential/compare.ts";
import { dual, fixed } from "../../conformance/differential/type-cases.ts";
import { attachment, type Case, endPodnetSide } from "../../conformance/differential/world.ts";

// Beside the reference's executables, for the drivers that a machine may lack. Few cases: everything is slow in here.
after(endPodnetSide);

const uplink =
  "ip link add dev0 address 0a:00:00:00:00:10 type dummy; ip link set dev0 mtu 1400 up";

const cases: readonly Case[] = [
  {
    type: "ipvlan",
    outcome: "works",
    name: "ipvlan with mode, an mtu above the master's and addresses of both families",
    prepare: uplink,
    config: { master: "dev0", mode: "l3", mtu: 1450, ipam: dual, dns: { domain: "example.org" } },
    keys: ["mode"],
  },
  {
    type: "vlan",
    outcome: "works",
    name: "vlan with mtu and routes",
    prepare: uplink,
    config: {
      master: "dev0",
      vlanId: 100,
      mtu: 1300,
      ipam: { ...fixed(["10.1.0.2/24", "10.1.0.1"]), routes: [{ dst: "0.0.0.0/0" }] },
    },
    keys: ["vlanId"],
  },
  {
    type: "dummy",
    outcome: "works",
    name: "dummy with addresses of both families",
    config: { ipam: dual },
    keys: [],
  },
];

const byDefaultRoute = `${uplink}; ip address add 192.0.2.9/24 dev dev0; ip route add default via 192.0.2.1`;
const inPod =
  "ip -n $POD link add dev0 address 0a:00:00:00:00:10 type dummy; ip -n $POD link set dev0 up";
const addAndDel = attachment.filter(({ verb }) => verb !== "CHECK");
const one = fixed(["10.1.0.2/24"]);

/** Each key once more with a value that works where the case above has it among others, and once with one that is refused. */
const more: readonly Case[] = [
  {
    type: "ipvlan",
    outcome: "works",
    name: "ipvlan on the interface of the default route",
    prepare: byDefaultRoute,
    config: { ipam: one },
    steps: addAndDel,
    keys: [],
  },
  {
    type: "ipvlan",
    outcome: "works",
    name: "ipvlan with linkInContainer",
    prepare: inPod,
    config: { master: "dev0", linkInContainer: true, ipam: one },
    steps: addAndDel,
    keys: ["linkInContainer"],
  },
  {
    type: "vlan",
    outcome: "works",
    name: "vlan with linkInContainer",
    prepare: inPod,
    config: { master: "dev0", vlanId: 5, linkInContainer: true, ipam: one },
    steps: addAndDel,
    keys: ["linkInContainer"],
  },
  ...(
    [
      ["ipvlan", "mode", "l4"],
      ["ipvlan", "master", "nope"],
      ["ipvlan", "mtu", "many"],
      ["vlan", "vlanId", 5000],
      ["vlan", "master", "nope"],
      ["vlan", "mtu", 1401],
      ["dummy", "ipam", { type: "static", addresses: [{ address: "none" }] }],
    ] as const
  ).map(
    ([type, key, value]): Case => ({
      type,
      outcome: "fails",
      name: `${type} with a wrong ${key}`,
      prepare: byDefaultRoute,
      config: { master: "dev0", vlanId: 5, ipam: one, [key]: value },
      steps: attachment.slice(0, 1),
      keys: [],
    }),
  ),
];

compareWithReference("VM: ", [...cases, ...more], { keys: [] });
