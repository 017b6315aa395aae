import { moveIntoNode, staticIpam } from "../helpers/attached.ts";
import { type Drift, type DriftCase, testDrifts } from "../helpers/drifts.ts";
import { Lab } from "../helpers/lab.ts";

const lab = new Lab();
const node = moveIntoNode(lab);

const routes = [
  { dst: "10.9.0.0/16", gw: "10.1.0.1", mtu: 1300, advmss: 1200, priority: 7 },
  { dst: "10.8.0.0/16", gw: "10.1.0.1", table: 77 },
  { dst: "fd09::/64", gw: "fd00:1::1", priority: 5, mtu: 1290 },
];
const ipam = {
  ...staticIpam(["10.1.0.5/24", "10.1.0.1"], ["fd00:1::5/64", "fd00:1::1"]),
  routes,
};

/** What every interface with addresses and routes may lose. */
const interfaceDrifts: readonly Drift[] = [
  { what: "an address", pod: "ip address del 10.1.0.5/24 dev eth0", says: /lacks address "10\.1/ },
  {
    what: "an IPv6 address",
    pod: "ip address del fd00:1::5/64 dev eth0",
    says: /lacks address "fd00:1::5/,
  },
  {
    what: "an address with another prefix length",
    pod: "ip address del 10.1.0.5/24 dev eth0; ip address add 10.1.0.5/25 dev eth0",
    says: /lacks address "10\.1\.0\.5\/24"/,
  },
  { what: "the MTU", pod: "ip link set eth0 mtu 1400", says: /MTU/ },
  {
    what: "the hardware address",
    pod: "ip link set eth0 address 02:00:00:00:77:77",
    says: /hardware address/,
  },
  { what: "the state", pod: "ip link set eth0 down", says: /it is down|is down|lacks/ },
  { what: "the name", pod: "ip link set eth0 down; ip link set eth0 name x", says: /gone/ },
  { what: "a route", pod: "ip route del 10.9.0.0/16", says: /lacks the route to "10\.9/ },
  { what: "an IPv6 route", pod: "ip -6 route del fd09::/64", says: /lacks the route to "fd09/ },
  {
    what: "a route's gateway",
    pod: "ip route del 10.9.0.0/16; ip route add 10.9.0.0/16 via 10.1.0.2 metric 7 mtu 1300 advmss 1200",
    says: /lacks the route to "10\.9.*via "10\.1\.0\.1"/,
  },
  {
    what: "a route's mtu",
    pod: "ip route change 10.9.0.0/16 via 10.1.0.1 metric 7 mtu 1200 advmss 1200",
    says: /10\.9.*mtu 1200/,
  },
  {
    what: "a route's advmss",
    pod: "ip route change 10.9.0.0/16 via 10.1.0.1 metric 7 mtu 1300",
    says: /10\.9.*advmss none/,
  },
  {
    what: "a route's priority",
    pod: "ip route del 10.9.0.0/16; ip route add 10.9.0.0/16 via 10.1.0.1 metric 8 mtu 1300 advmss 1200",
    says: /10\.9.*priority 8/,
  },
  {
    what: "an IPv6 route's priority",
    pod: "ip -6 route del fd09::/64; ip -6 route add fd09::/64 via fd00:1::1 metric 6 mtu 1290",
    says: /fd09.*priority 6/,
  },
  {
    what: "an IPv6 route's mtu",
    pod: "ip -6 route del fd09::/64; ip -6 route add fd09::/64 via fd00:1::1 metric 5",
    says: /fd09.*mtu none/,
  },
  {
    what: "a route's table",
    pod: "ip route del 10.8.0.0/16 table 77; ip route add 10.8.0.0/16 via 10.1.0.1 table 78",
    says: /lacks the route to "10\.8/,
  },
];

const uplink = (name: string): string =>
  `ip link add ${name} type veth peer name ${name}p; ip link set ${name}p up; ip link set ${name} up`;
/** The same interface made anew on another lower device, by hand. */
const remade = (kind: string): string =>
  `mac=$(nsenter --net=/run/netns/$POD ip -j link show eth0 | jq -r '.[0].address'); ip -n $POD link del eth0; ip link add link other0 netns $POD name eth0 address $mac type ${kind}; ip -n $POD link set eth0 up`;

/** Without a gateway, so that routes have a scope of their own. */
const scoped: Drift = {
  what: "a route's scope",
  pod: "ip route change 10.7.0.0/16 dev eth0 scope global",
  says: /10\.7.*scope 0/,
};

const bridge = { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, ipam };
const plainBridge = {
  type: "bridge",
  bridge: "br1",
  ipam: { ...staticIpam(["10.2.0.5/24"]), routes: [{ dst: "10.7.0.0/16", scope: 253 }] },
};
const portmap = { type: "portmap", snat: true };
const shaped = { ingressRate: 1e6, ingressBurst: 1e5, egressRate: 1e6, egressBurst: 1e5 };

const cases: readonly DriftCase[] = [
  {
    name: "bridge",
    plugins: [{ ...bridge, hairpinMode: true, portIsolation: true, macspoofchk: true, mtu: 1450 }],
    drifts: [
      // As long as it is a gateway.
      ...interfaceDrifts,
      { what: "the port's bridge", node: "ip link set $PORT nomaster", says: /is not on bridge/ },
      { what: "the port's state", node: "ip link set $PORT down", says: /is down|lacks/ },
      { what: "the port's MTU", node: "ip link set $PORT mtu 1400", says: /has MTU 1400/ },
      { what: "hairpin", node: "bridge link set dev $PORT hairpin off", says: /hairpin mode off/ },
      { what: "isolation", node: "bridge link set dev $PORT isolated off", says: /isolation off/ },
      {
        what: "the gateway address",
        node: "ip address del 10.1.0.1/24 dev br0",
        says: /lacks the gateway address "10\.1/,
      },
      { what: "forwarding", node: "sysctl -qw net.ipv4.ip_forward=0", says: /ip_forward is 0/ },
      {
        what: "IPv6 forwarding",
        node: "sysctl -qw net.ipv6.conf.all.forwarding=0",
        says: /forwarding is 0/,
      },
      { what: "the bridge's state", node: "ip link set br0 down", says: /bridge "br0" is down/ },
      {
        what: "the elements of masquerading",
        node: "for set in $(nft -j list sets | jq -r '.nftables[].set//empty|select(.table==\"podnet\")|.name'); do nft flush set inet podnet $set; done",
        says: /masquerading of/,
      },
      {
        what: "the rules of masquerading",
        node: "nft flush table inet podnet",
        says: /chain "masq4/,
      },
      {
        what: "an element of macspoofchk",
        node: "nft flush set bridge podnet_macspoof own",
        says: /lacks its element in nftables "own"/,
      },
      {
        what: "a port of macspoofchk",
        node: "nft flush set bridge podnet_macspoof ports",
        says: /lacks its element in nftables "ports"/,
      },
      {
        what: "the rule of macspoofchk",
        node: "nft flush chain bridge podnet_macspoof prerouting",
        says: /the rule of nftables chain/,
      },
      { what: "the bridge", node: "ip link del br0", says: /bridge "br0" is gone|not on bridge/ },
    ],
  },
  {
    name: "bridge in promiscuous mode",
    plugins: [{ ...plainBridge, promiscMode: true }],
    drifts: [
      scoped,
      { what: "promisc", node: "ip link set br1 promisc off", says: /not promiscuous/ },
    ],
  },
  {
    name: "macvlan",
    prepare: `${uplink("up0")}; ${uplink("other0")}`,
    plugins: [{ type: "macvlan", master: "up0", mode: "private", bcqueuelen: 50, ipam }],
    drifts: [
      ...interfaceDrifts,
      {
        what: "the mode",
        pod: "ip link set eth0 type macvlan mode bridge",
        says: /its mode is not/,
      },
      {
        what: "bcqueuelen",
        pod: "ip link set eth0 type macvlan bcqueuelen 60",
        says: /its bcqueuelen is 60, not 50/,
      },
      {
        what: "the master's name",
        node: "ip link set up0 down; ip link set up0 name up9; ip link set up9 up",
        says: /master "up0": no such interface/,
      },
      // The next cases find it as before.
    ],
  },
  {
    name: "macvlan on the interface of the default route",
    prepare:
      "ip link set up9 down; ip link set up9 name up0; ip link set up0 up; ip address add 192.0.2.1/24 dev up0; ip route add default via 192.0.2.2",
    plugins: [{ type: "macvlan", ipam: staticIpam(["10.3.0.5/24"]) }],
    drifts: [
      {
        what: "the master",
        node: remade("macvlan mode bridge"),
        says: /it has another master than it was made on/,
      },
    ],
  },
  {
    name: "ptp",
    plugins: [{ type: "ptp", ipMasq: true, ipam: { ...ipam, routes: routes.slice(0, 2) } }],
    drifts: [
      ...interfaceDrifts.filter(({ what }) => !/IPv6 route|address|gateway/.test(what)),
      { what: "an address", pod: "ip address del 10.1.0.5/24 dev eth0", says: /lacks/ },
      { what: "the node's end", node: "ip link set $PORT down", says: /of the node is down/ },
      { what: "the node's MTU", node: "ip link set $PORT mtu 1300", says: /of the node has MTU/ },
      {
        what: "the gateway's address",
        node: "ip address del 10.1.0.1/32 dev $PORT",
        says: /of the node lacks address/,
      },
      {
        what: "the route to the pod",
        node: "ip route del 10.1.0.5/32",
        says: /of the node lacks the route/,
      },
      {
        what: "the route to the subnet",
        pod: "ip route del 10.1.0.0/24",
        says: /lacks the routes to/,
      },
      { what: "forwarding", node: "sysctl -qw net.ipv4.ip_forward=0", says: /ip_forward is 0/ },
      {
        what: "masquerading",
        node: "nft flush table inet podnet",
        says: /chain "masq4/,
      },
    ],
  },
  {
    name: "tap",
    preparePod: "ip link add br0 type bridge; ip link set br0 up",
    plugins: [{ type: "tap", bridge: "br0", owner: 5, group: 6, multiQueue: true }],
    drifts: [
      { what: "the bridge", pod: "ip link set eth0 nomaster", says: /it is not a port of bridge/ },
      {
        what: "the owner",
        pod: `${remadeTap("user 7 group 6 multi_queue")}`,
        says: /its owner is 7, not 5/,
      },
      {
        what: "the group",
        pod: `${remadeTap("user 5 group 8 multi_queue")}`,
        says: /its group is 8, not 6/,
      },
      {
        what: "the queues",
        pod: `${remadeTap("user 5 group 6")}`,
        says: /its multiQueue is false, not true/,
      },
    ],
  },
  {
    name: "host-device",
    prepare: uplink("lent0"),
    plugins: [{ type: "host-device", device: "lent0", ipam }],
    drifts: [
      ...interfaceDrifts.filter(({ what }) => what !== "the name"),
      {
        what: "the device",
        pod: "mac=$(ip -j link show eth0 | jq -r '.[0].address'); ip link set eth0 down; ip link set eth0 name y; ip link add eth0 address $mac type bridge; ip link set eth0 up",
        says: /is not device|lacks|MTU/,
      },
    ],
  },
  {
    name: "tuning",
    plugins: [
      plainBridge,
      {
        type: "tuning",
        mac: "02:00:00:00:00:44",
        mtu: 1333,
        promisc: true,
        allmulti: true,
        txQLen: 44,
        sysctl: { "net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_notify": "1" },
      },
    ],
    drifts: [
      { what: "a sysctl", pod: "sysctl -qw net.core.somaxconn=501", says: /somaxconn is "501"/ },
      {
        what: "a sysctl of the interface",
        pod: "sysctl -qw net.ipv4.conf.eth0.arp_notify=0",
        says: /arp_notify is "0"/,
      },
      {
        what: "mac",
        pod: "ip link set eth0 address 02:00:00:00:00:45",
        says: /hardware address|mac/,
      },
      { what: "mtu", pod: "ip link set eth0 mtu 1400", says: /MTU|mtu/ },
      { what: "promisc", pod: "ip link set eth0 promisc off", says: /promisc/ },
      { what: "allmulti", pod: "ip link set eth0 allmulticast off", says: /allmulti/ },
      { what: "txQLen", pod: "ip link set eth0 txqueuelen 45", says: /txQLen/ },
    ],
  },
  {
    name: "bandwidth",
    plugins: [plainBridge, { type: "bandwidth", ...shaped }],
    drifts: [
      { what: "the bucket", node: "tc qdisc del dev $PORT root", says: /has no token bucket/ },
      {
        what: "the rate",
        node: "tc qdisc replace dev $PORT root tbf rate 2mbit burst 12500 latency 25ms",
        says: /instead of/,
      },
      { what: "the redirection", node: "tc qdisc del dev $PORT ingress", says: /does not send to/ },
      {
        what: "the ifb's state",
        node: "ip link set $(ip -j link | jq -r '.[].ifname|select(startswith(\"bwp\"))') down",
        says: /is down, and drops/,
      },
      {
        what: "the ifb",
        node: "ip link del $(ip -j link | jq -r '.[].ifname|select(startswith(\"bwp\"))')",
        says: /is gone/,
      },
    ],
  },
  {
    name: "portmap",
    plugins: [{ ...bridge, bridge: "br1", ipMasq: false }, portmap],
    runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] },
    drifts: [
      {
        what: "its elements",
        node: "nft -j list table inet podnet_portmap | jq -r '.nftables[]|(.map//.set)|select(.elem)|.name' | while read s; do nft flush set inet podnet_portmap $s 2>/dev/null || nft flush map inet podnet_portmap $s; done",
        says: /8080|nftables/,
      },
      { what: "its rules", node: "nft flush table inet podnet_portmap", says: /nftables|rule/ },
    ],
  },
  {
    name: "sbr",
    plugins: [
      {
        type: "bridge",
        bridge: "br3",
        ipam: { ...staticIpam(["10.1.0.5/24", "10.1.0.1"]), routes: routes.slice(0, 1) },
      },
      { type: "sbr" },
    ],
    drifts: [
      { what: "the rule", pod: "ip rule del from 10.1.0.5/32", says: /the rule for what comes/ },
      {
        what: "the default route",
        pod: "ip route del default table 100",
        says: /lacks the default route/,
      },
      {
        what: "a route that moved",
        pod: "ip route del 10.9.0.0/16 table 100",
        says: /lacks the route to "10\.9/,
      },
    ],
  },
];

function remadeTap(options: string): string {
  return `mac=$(ip -j link show eth0 | jq -r '.[0].address'); ip link del eth0; ip tuntap add eth0 mode tap ${options}; ip link set eth0 address $mac master br0 up`;
}

testDrifts(lab, node, cases);
