import { moveIntoNode, staticIpam } from "../helpers/attached.ts";
import { type DriftCase, testDrifts } from "../helpers/drifts.ts";
import { Lab } from "../helpers/lab.ts";

// Changes of a part only: one element of a set, one direction of two, one family of two. What is gone as a whole is in drift.test.ts.

const lab = new Lab();
const node = moveIntoNode(lab);

const ipam = staticIpam(["10.1.0.5/24", "10.1.0.1"], ["fd00:1::5/64", "fd00:1::1"]);
const bridge = { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, ipam };
const plain = { type: "bridge", bridge: "br1", ipam: staticIpam(["10.2.0.5/24"]) };
const folder = lab.folder();
const stored = {
  type: "host-local",
  dataDir: folder,
  ranges: [[{ subnet: "10.3.0.0/24" }]],
};

const without = (set: string, element: string): string =>
  `nft delete element inet podnet ${set} '{ ${element} }'`;
const ifb = `$(ip -j link | jq -r '.[].ifname|select(startswith("bwp"))')`;

/** The first of podnet's sets that has elements. */
const oneMapping =
  "nft -a list table inet podnet_portmap | grep -q 8080 && nft -j list table inet podnet_portmap | jq -r '[.nftables[]|(.map//.set)|select(.elem)][0].name' | while read s; do nft flush map inet podnet_portmap $s 2>/dev/null || nft flush set inet podnet_portmap $s; done";

const masqueradeParts = [
  {
    what: "one element of masquerading",
    node: without("masq4", "10.1.0.5"),
    says: /masquerading of/,
  },
  {
    what: "one IPv6 element of masquerading",
    node: without("masq6", "fd00:1::5"),
    says: /masquerading of/,
  },
  {
    what: "one subnet that is not masqueraded",
    node: "nft flush set inet podnet local4",
    says: /masquerading of/,
  },
];

const cases: readonly DriftCase[] = [
  {
    name: "bridge, in parts",
    plugins: [bridge],
    drifts: [
      {
        what: "the IPv6 gateway address",
        node: "ip address del fd00:1::1/64 dev br0",
        says: /lacks the gateway address "fd00:1::1/,
      },
      ...masqueradeParts,
    ],
  },
  {
    name: "ptp, in parts",
    plugins: [{ ...bridge, type: "ptp" }],
    drifts: [
      {
        what: "the IPv6 address",
        pod: "ip address del fd00:1::5/64 dev eth0",
        says: /lacks/,
      },
      {
        what: "the node's IPv6 address",
        node: "ip address del fd00:1::1/128 dev $PORT",
        says: /of the node lacks address/,
      },
      {
        what: "the IPv6 route to the pod",
        node: "ip -6 route del fd00:1::5/128",
        says: /of the node lacks the route/,
      },
      {
        what: "the IPv6 route to the subnet",
        pod: "ip -6 route del fd00:1::/64",
        says: /lacks the routes to/,
      },
      {
        what: "IPv6 forwarding",
        node: "sysctl -qw net.ipv6.conf.all.forwarding=0",
        says: /forwarding is 0/,
      },
      ...masqueradeParts,
    ],
  },
  {
    name: "bandwidth, in parts",
    plugins: [
      plain,
      {
        type: "bandwidth",
        ingressRate: 1e6,
        ingressBurst: 1e5,
        egressRate: 2e6,
        egressBurst: 1e5,
      },
    ],
    drifts: [
      {
        what: "the ifb's rate",
        node: `tc qdisc replace dev ${ifb} root tbf rate 3mbit burst 12500 latency 25ms`,
        says: /instead of/,
      },
      {
        what: "the ifb's bucket",
        node: `tc qdisc del dev ${ifb} root`,
        says: /has no token bucket/,
      },
      {
        what: "the bucket's burst",
        node: "tc qdisc replace dev $PORT root tbf rate 1mbit burst 25000 latency 25ms",
        says: /instead of/,
      },
    ],
  },
  {
    name: "portmap, in parts",
    plugins: [
      { ...bridge, bridge: "br2", ipMasq: false },
      { type: "portmap", snat: true },
    ],
    runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] },
    drifts: [{ what: "one of its sets", node: oneMapping, says: /8080|nftables/ }],
  },
  {
    name: "sbr, in parts",
    plugins: [
      { ...plain, bridge: "br3", ipam: staticIpam(["10.1.0.5/24", "10.1.0.1"]) },
      { type: "sbr" },
    ],
    drifts: [
      {
        what: "the rule's table",
        pod: "ip rule del from 10.1.0.5/32; ip rule add from 10.1.0.5/32 table 101",
        says: /table 101 lacks the default route/,
      },
      {
        what: "the default route's gateway",
        pod: "ip route replace default via 10.1.0.9 table 100",
        says: /lacks the default route/,
      },
      {
        what: "the route to the subnet",
        pod: "ip route del 10.1.0.0/24 table 100",
        says: /table 100 lacks the route to 10\.1\.0\.0\/24/,
      },
    ],
  },
  {
    name: "addresses of host-local",
    plugins: [{ type: "bridge", bridge: "br4", ipam: stored }],
    drifts: [
      {
        what: "the address' file",
        node: `find ${folder} -name '10.3.*' -delete`,
        says: /10\.3\.0\.|container/,
      },
    ],
  },
];

testDrifts(lab, node, cases);
