import type { Case, Step } from "./world.ts";

const add = (id: string, ifName = "eth0"): Step => ({ verb: "ADD", id, ifName });
const del = (id: string, ifName = "eth0"): Step => ({ verb: "DEL", id, ifName });
const check = (id: string, ifName = "eth0"): Step => ({ verb: "CHECK", id, ifName });

const works = { type: "bridge", outcome: "works" } as const;
const fails = { type: "bridge", outcome: "fails" } as const;

const v4 = [{ subnet: "10.1.0.0/24" }];
const v6 = [{ subnet: "fd00:1::/64" }];
const ipam = (more: object = {}) => ({
  type: "host-local",
  dataDir: "$DATA",
  ranges: [v4],
  ...more,
});
const dual = ipam({ ranges: [v4, v6] });
const fixed = (...addresses: string[]) => ({
  type: "static",
  addresses: addresses.map((address) => ({ address })),
});
const bridgeWith = (address: string) =>
  `ip link add br0 type bridge; ip address add ${address} dev br0; ip link set br0 up`;
/** Tries for a while: the gateway's IPv6 address is usable after duplicate address detection only. */
const ping = (address: string) =>
  `{ for try in 1 2 3 4; do ping -c1 -W1 ${address} && break; done; }`;
/** Which addresses the pod can send from, as a number: its own is 1, another is 2. */
const spoof = [
  "own=$(ip -j link show eth0 | jq -r '.[0].address')",
  'try() { ip link set eth0 address "$1"; ip neighbour flush dev eth0; ping -c1 -W1 10.1.0.1; }',
  'seen=0; try "$own" && seen=1',
  "try 0a:00:00:00:00:66 && seen=$((seen + 2))",
  'ip link set eth0 address "$own"; exit $seen',
].join("\n");

/** A key that is a boolean, given as text. */
const notBoolean = (key: string): Case => ({
  ...fails,
  name: `${key}: a text`,
  config: { bridge: "br0", [key]: "true" },
  keys: [key],
});

export const bridgeCases: readonly Case[] = [
  { ...works, name: "bridge", config: { bridge: "br0" }, keys: ["bridge"] },
  { ...works, name: "nothing but the type", config: {}, keys: [] },
  {
    ...works,
    name: "bridge exists",
    config: { bridge: "br0", mtu: 1400 },
    prepare: "ip link add br0 type bridge",
    keys: ["mtu"],
  },
  { ...fails, name: "bridge: a name with a slash", config: { bridge: "a/b" }, keys: ["bridge"] },
  { ...fails, name: "bridge: not a bridge", config: { bridge: "lo" }, keys: ["bridge"] },
  {
    ...works,
    name: "isGateway",
    config: { bridge: "br0", isGateway: true, ipam: dual },
    keys: ["isGateway"],
  },
  notBoolean("isGateway"),
  {
    ...works,
    name: "isDefaultGateway",
    config: { bridge: "br0", isDefaultGateway: true, ipam: dual },
    keys: ["isDefaultGateway"],
  },
  {
    ...works,
    name: "isDefaultGateway with a default route in IPAM",
    config: {
      bridge: "br0",
      isDefaultGateway: true,
      ipam: ipam({ routes: [{ dst: "0.0.0.0/0", gw: "10.1.0.9" }] }),
    },
    keys: ["ipam.routes"],
  },
  notBoolean("isDefaultGateway"),
  {
    ...works,
    name: "forceAddress",
    prepare: bridgeWith("10.9.0.1/24"),
    config: { bridge: "br0", isGateway: true, forceAddress: true, ipam: dual },
    keys: ["forceAddress"],
  },
  {
    ...works,
    name: "the bridge has another IPv6 address",
    prepare: bridgeWith("fd00:2::1/64"),
    config: { bridge: "br0", isGateway: true, ipam: dual },
    keys: ["isGateway"],
  },
  {
    ...works,
    name: "the bridge has the gateway address",
    prepare: bridgeWith("10.1.0.1/24"),
    config: { bridge: "br0", isGateway: true, ipam: ipam() },
    keys: [],
  },
  {
    ...fails,
    name: "no forceAddress, the bridge has another address",
    prepare: bridgeWith("10.9.0.1/24"),
    config: { bridge: "br0", isGateway: true, ipam: ipam() },
    keys: ["isGateway"],
  },
  notBoolean("forceAddress"),
  {
    ...works,
    name: "ipMasq",
    config: { bridge: "br0", isDefaultGateway: true, ipMasq: true, ipam: dual },
    probe: `${ping("192.0.2.2")} && ${ping("2001:db8::2")}`,
    keys: ["ipMasq"],
  },
  {
    ...works,
    name: "ipMasq by nftables, a neighbour on the bridge",
    config: {
      bridge: "br0",
      isDefaultGateway: true,
      ipMasq: true,
      ipMasqBackend: "nftables",
      ipam: ipam(),
    },
    probe: ping("192.0.2.2"),
    steps: [add("c1"), add("c2", "eth1"), del("c1"), check("c2", "eth1"), del("c2", "eth1")],
    keys: ["ipMasq"],
  },
  notBoolean("ipMasq"),
  {
    ...fails,
    name: "ipMasqBackend: unknown",
    config: { bridge: "br0", ipMasq: true, ipMasqBackend: "magic", ipam: ipam() },
    keys: ["ipMasqBackend"],
  },
  { ...works, name: "mtu", config: { bridge: "br0", mtu: 1400 }, keys: ["mtu"] },
  { ...works, name: "mtu: negative means none", config: { bridge: "br0", mtu: -5 }, keys: [] },
  { ...fails, name: "mtu: too large", config: { bridge: "br0", mtu: 1234567 }, keys: ["mtu"] },
  { ...fails, name: "mtu: a text", config: { bridge: "br0", mtu: "1400" }, keys: ["mtu"] },
  {
    ...works,
    name: "hairpinMode",
    config: { bridge: "br0", hairpinMode: true },
    keys: ["hairpinMode"],
  },
  notBoolean("hairpinMode"),
  {
    ...fails,
    name: "hairpinMode with promiscMode",
    config: { bridge: "br0", hairpinMode: true, promiscMode: true },
    keys: ["hairpinMode", "promiscMode"],
  },
  {
    ...works,
    name: "promiscMode",
    config: { bridge: "br0", promiscMode: true, ipam: ipam() },
    keys: ["promiscMode"],
  },
  {
    ...works,
    name: "enabledad",
    config: { bridge: "br0", enabledad: true, ipam: dual },
    keys: ["enabledad"],
  },
  notBoolean("enabledad"),
  {
    ...works,
    name: "disableContainerInterface",
    config: { bridge: "br0", disableContainerInterface: true },
    steps: [add("c1"), del("c1")],
    keys: ["disableContainerInterface"],
  },
  {
    ...fails,
    name: "disableContainerInterface with IPAM",
    config: { bridge: "br0", disableContainerInterface: true, ipam: ipam() },
    keys: ["disableContainerInterface"],
  },
  {
    ...works,
    name: "portIsolation",
    config: { bridge: "br0", portIsolation: true },
    keys: ["portIsolation"],
  },
  notBoolean("portIsolation"),
  {
    ...works,
    name: "macspoofchk",
    config: { bridge: "br0", isGateway: true, macspoofchk: true, ipam: fixed("10.1.0.5/24") },
    probe: spoof,
    keys: ["macspoofchk"],
  },
  notBoolean("macspoofchk"),
  {
    ...works,
    name: "args.cni.mac over CNI_ARGS MAC",
    config: { bridge: "br0", args: { cni: { mac: "0a:00:00:00:00:07" } } },
    args: "MAC=0a:00:00:00:00:08",
    keys: ["args.cni.mac"],
  },
  {
    ...fails,
    name: "args.cni.mac: none",
    config: { bridge: "br0", args: { cni: { mac: "zz" } } },
    keys: ["args.cni.mac"],
  },
  {
    ...works,
    name: "runtimeConfig.mac over args.cni.mac",
    config: {
      bridge: "br0",
      args: { cni: { mac: "0a:00:00:00:00:07" } },
      runtimeConfig: { mac: "0a:00:00:00:00:09" },
    },
    keys: ["runtimeConfig.mac"],
  },
  {
    ...fails,
    name: "runtimeConfig.mac: none",
    config: { bridge: "br0", runtimeConfig: { mac: "zz" } },
    keys: ["runtimeConfig.mac"],
  },
  {
    ...works,
    name: "CNI_ARGS MAC",
    config: { bridge: "br0" },
    args: "MAC=0a:00:00:00:00:08",
    keys: ["CNI_ARGS.MAC"],
  },
  {
    ...fails,
    name: "CNI_ARGS MAC: none",
    config: { bridge: "br0" },
    args: "MAC=zz",
    keys: ["CNI_ARGS.MAC"],
  },
  {
    ...works,
    name: "dns over IPAM's",
    config: {
      bridge: "br0",
      dns: { nameservers: ["9.9.9.9"] },
      ipam: { ...fixed("10.1.0.5/24"), dns: { domain: "d" } },
    },
    keys: ["dns"],
  },
  {
    ...fails,
    name: "dns: no list",
    config: { bridge: "br0", dns: { nameservers: "9.9.9.9" } },
    keys: ["dns"],
  },
  {
    ...works,
    name: "routes",
    config: {
      bridge: "br0",
      isGateway: true,
      ipam: {
        ...dual,
        routes: [
          { dst: "10.8.0.0/16" },
          { dst: "10.9.0.0/16", gw: "10.1.0.9", priority: 77 },
          { dst: "10.10.0.0/16", table: 100, gw: "10.1.0.9" },
          { dst: "fd08::/64" },
          { dst: "fd09::/64", gw: "fd00:1::9", priority: 5 },
        ],
      },
    },
    keys: ["ipam.routes", "ipam.routes.priority", "ipam.routes.table", "ipam.routes.gw"],
  },
  {
    ...works,
    name: "routes without any gateway",
    config: {
      bridge: "br0",
      ipam: {
        ...fixed("10.1.0.5/24", "fd00:1::5/64"),
        routes: [{ dst: "0.0.0.0/0" }, { dst: "10.8.0.0/16", scope: 253 }, { dst: "fd08::/64" }],
      },
    },
    keys: ["ipam.routes", "ipam.routes.scope"],
  },
  {
    ...works,
    name: "routes with mtu and advmss",
    config: {
      bridge: "br0",
      ipam: ipam({ routes: [{ dst: "10.8.0.0/16", mtu: 1300, advmss: 1200 }] }),
    },
    keys: ["ipam.routes"],
  },
  {
    ...fails,
    name: "routes: gateway out of reach",
    config: { bridge: "br0", ipam: ipam({ routes: [{ dst: "10.8.0.0/16", gw: "172.16.0.1" }] }) },
    keys: ["ipam.routes"],
  },
  {
    ...works,
    name: "several addresses of each family",
    config: {
      bridge: "br0",
      isGateway: true,
      ipam: fixed("10.1.0.5/24", "10.1.0.6/24", "fd00:1::5/64", "fd00:2::5/64"),
    },
    keys: ["isGateway"],
  },
  {
    ...works,
    name: "IPv6 only",
    config: { bridge: "br0", isDefaultGateway: true, ipam: ipam({ ranges: [v6] }) },
    keys: ["isDefaultGateway"],
  },
  {
    ...works,
    name: "a /32 and a /128",
    config: { bridge: "br0", ipam: fixed("10.1.0.5/32", "fd00:1::5/128") },
    keys: ["ipam"],
  },
  {
    ...works,
    name: "requested addresses",
    config: {
      bridge: "br0",
      isGateway: true,
      args: { cni: { ips: ["10.1.0.77"] } },
      runtimeConfig: { ips: ["fd00:1::77/64"] },
      ipam: dual,
    },
    keys: ["args.cni.ips", "runtimeConfig.ips"],
  },
  {
    ...works,
    name: "a runtime's ipRanges beside two sets",
    config: {
      bridge: "br0",
      runtimeConfig: { ipRanges: [[{ subnet: "10.7.0.0/24", gateway: "10.7.0.9" }]] },
      ipam: dual,
    },
    keys: ["runtimeConfig.ipRanges"],
  },
  {
    ...fails,
    name: "IPAM gives no address",
    config: { bridge: "br0", ipam: { type: "static" } },
    keys: [],
  },
  {
    ...works,
    name: "two pods and two interfaces, ended one by one",
    config: { bridge: "br0", isGateway: true, ipam: dual },
    steps: [
      add("c1"),
      add("c1", "net1"),
      add("c2", "net2"),
      check("c1"),
      del("c1"),
      check("c2", "net2"),
      del("c2", "net2"),
      del("c1", "net1"),
      del("c1"),
    ],
    keys: [],
  },
  {
    ...fails,
    name: "the pod has the interface already",
    prepare: "ip -n $POD link add eth0 type bridge",
    config: { bridge: "br0", ipam: ipam() },
    steps: [add("c1")],
    keys: [],
  },
  {
    ...works,
    name: "DEL with the namespace's interface gone",
    config: { bridge: "br0", ipam: ipam() },
    steps: [del("c9"), add("c1"), del("c1"), del("c1")],
    keys: [],
  },
];

/** These need a kernel whose bridges filter by VLAN. */
export const vlanCases: readonly Case[] = [
  { ...works, driver: "vlan", name: "vlan", config: { bridge: "br0", vlan: 100 }, keys: ["vlan"] },
  {
    ...works,
    driver: "vlan",
    name: "vlan with a gateway",
    config: { bridge: "br0", vlan: 100, isGateway: true, ipam: dual },
    keys: ["vlan", "isGateway"],
  },
  {
    ...works,
    driver: "vlan",
    name: "vlan on a bridge without filtering",
    prepare: "ip link add br0 type bridge",
    config: { bridge: "br0", vlan: 5 },
    keys: ["vlan"],
  },
  {
    ...fails,
    driver: "vlan",
    name: "vlan: too high",
    config: { bridge: "br0", vlan: 4095 },
    keys: ["vlan"],
  },
  {
    ...works,
    driver: "vlan",
    name: "preserveDefaultVlan",
    config: { bridge: "br0", vlan: 100, preserveDefaultVlan: true },
    keys: ["preserveDefaultVlan"],
  },
  {
    ...fails,
    driver: "vlan",
    name: "preserveDefaultVlan: a text",
    config: { bridge: "br0", preserveDefaultVlan: "true" },
    keys: ["preserveDefaultVlan"],
  },
  {
    ...works,
    driver: "vlan",
    name: "vlanTrunk",
    config: { bridge: "br0", vlanTrunk: [{ minID: 5, maxID: 7 }, { id: 9 }] },
    keys: ["vlanTrunk", "vlanTrunk.id"],
  },
  {
    ...works,
    driver: "vlan",
    name: "vlanTrunk with a native VLAN",
    config: { bridge: "br0", vlan: 3, vlanTrunk: [{ id: 9 }, { id: 3 }] },
    keys: ["vlan", "vlanTrunk"],
  },
  {
    ...works,
    driver: "vlan",
    name: "vlanTrunk: empty",
    config: { bridge: "br0", vlanTrunk: [] },
    keys: ["vlanTrunk"],
  },
  {
    ...fails,
    driver: "vlan",
    name: "vlanTrunk: minID alone",
    config: { bridge: "br0", vlanTrunk: [{ minID: 5 }] },
    keys: ["vlanTrunk"],
  },
  {
    ...fails,
    driver: "vlan",
    name: "vlanTrunk: minID above maxID",
    config: { bridge: "br0", vlanTrunk: [{ minID: 9, maxID: 5 }] },
    keys: ["vlanTrunk"],
  },
  {
    ...fails,
    driver: "vlan",
    name: "vlanTrunk: id 0",
    config: { bridge: "br0", vlanTrunk: [{ id: 0 }] },
    keys: ["vlanTrunk.id"],
  },
];
