import { after } from "node:test";
import { compareWithReference } from "../../conformance/differential/compare.ts";
import { dual, fixed } from "../../conformance/differential/type-cases.ts";
import { type Case, endPodnetSide } from "../../conformance/differential/world.ts";

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

// Bad values, and each key by itself, are in the types' own tests.
compareWithReference("VM: ", cases, { keys: [] });
