import { moveIntoNode, staticIpam } from "../../helpers/attached.ts";
import { type DriftCase, testDrifts } from "../../helpers/drifts.ts";
import { Lab } from "../../helpers/lab.ts";

// Of the types and keys that the machine's own kernel may lack: the others are in test/kernel/drift.test.ts.
const lab = new Lab();
const node = moveIntoNode(lab);
const uplinks =
  "ip link add up0 type dummy; ip link add up1 type dummy; ip link set up0 up; ip link set up1 up";
const ipam = staticIpam(["10.1.0.5/24"]);
const remade = (kind: string): string =>
  `mac=$(ip -n $POD -j link show eth0 | jq -r '.[0].address'); ip -n $POD link del eth0; ip link add link up1 netns $POD name eth0 address $mac type ${kind}; ip -n $POD link set eth0 up`;
const trunk = { type: "bridge", bridge: "br0", vlan: 100, vlanTrunk: [{ minID: 5, maxID: 6 }] };

const cases: readonly DriftCase[] = [
  {
    name: "vlan",
    prepare: uplinks,
    plugins: [{ type: "vlan", master: "up0", vlanId: 7, ipam }],
    drifts: [
      { what: "the master", node: remade("vlan id 7"), says: /another master/ },
      {
        what: "the VLAN",
        node: remade("vlan id 8").replace("link up1", "link up0"),
        says: /its VLAN is not 7/,
      },
      {
        what: "the protocol",
        node: remade("vlan protocol 802.1ad id 7").replace("link up1", "link up0"),
        says: /its VLAN protocol is not/,
      },
    ],
  },
  {
    name: "ipvlan without a master's name",
    prepare: "ip address add 192.0.2.1/24 dev up0; ip route add default via 192.0.2.2",
    plugins: [{ type: "ipvlan", ipam }],
    drifts: [
      { what: "the mode", pod: "ip link set eth0 type ipvlan mode l3", says: /its mode is not/ },
      {
        what: "the master",
        node: "ip -n $POD link del eth0; ip link add link up1 netns $POD name eth0 type ipvlan; ip -n $POD link set eth0 up",
        says: /another master|hardware address/,
      },
    ],
  },
  {
    name: "vrf",
    plugins: [
      {
        type: "macvlan",
        master: "up0",
        ipam: { ...ipam, routes: [{ dst: "10.9.0.0/16", gw: "10.1.0.1" }] },
      },
      { type: "vrf", vrfname: "red", table: 77 },
    ],
    drifts: [
      { what: "the master", pod: "ip link set eth0 nomaster", says: /is not in VRF|lacks/ },
      { what: "the VRF's state", pod: "ip link set red down", says: /is down|lacks/ },
      {
        what: "a route in its table",
        pod: "ip route del 10.9.0.0/16 table 77",
        says: /lacks the route/,
      },
    ],
  },
  {
    name: "bridge with VLANs",
    plugins: [trunk],
    drifts: [
      { what: "the VLAN", node: "bridge vlan del vid 100 dev $PORT", says: /not in VLAN 100/ },
      {
        what: "a VLAN of the trunk",
        node: "bridge vlan del vid 6 dev $PORT",
        says: /not in VLAN 6/,
      },
      { what: "one VLAN more", node: "bridge vlan add vid 9 dev $PORT", says: /is in VLAN 9/ },
      {
        what: "the untagged VLAN",
        node: "bridge vlan add vid 5 pvid dev $PORT",
        says: /another VLAN/,
      },
      {
        what: "filtering",
        node: "ip link set br0 type bridge vlan_filtering 0",
        says: /does not filter VLANs/,
      },
    ],
  },
];

testDrifts(lab, node, cases);
