import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { attachment, type Case, endPodnetSide, type Step } from "./world.ts";

after(endPodnetSide);

const add = (id: string, ifName = "eth0"): Step => ({ verb: "ADD", id, ifName });
const del = (id: string, ifName = "eth0"): Step => ({ verb: "DEL", id, ifName });
const check = (id: string, ifName = "eth0"): Step => ({ verb: "CHECK", id, ifName });

const v4 = { subnet: "10.1.0.0/29" };
const v6 = { subnet: "fd00:1::/64" };
const hostLocal = (ipam: object, more: object = {}) => ({
  ...more,
  ipam: { type: "host-local", dataDir: "$DATA", ...ipam },
});
const sets = (...ranges: object[]) => ({ ranges: ranges.map((range) => [range]) });

const works = { type: "host-local", outcome: "works" } as const;
const fails = { type: "host-local", outcome: "fails" } as const;

const hostLocalCases: readonly Case[] = [
  { ...works, name: "ranges", config: hostLocal(sets(v4)), keys: ["ipam.ranges"] },
  {
    ...fails,
    name: "ranges: empty",
    config: hostLocal({ ranges: [[]], ...v4 }),
    keys: ["ipam.ranges"],
  },
  { ...fails, name: "ranges: none", config: hostLocal({ ranges: [] }), keys: [] },
  {
    ...works,
    name: "subnet inline",
    config: hostLocal({ ...v4, ...sets(v6) }),
    keys: ["ipam.subnet"],
  },
  {
    ...fails,
    name: "subnet: host bits",
    config: hostLocal({ subnet: "10.1.0.9/24", ...sets(v6) }),
    keys: ["ipam.subnet"],
  },
  {
    ...fails,
    name: "subnet: no CIDR",
    config: hostLocal({ subnet: "10.1.0.0", ...sets(v6) }),
    keys: ["ipam.subnet"],
  },
  {
    ...fails,
    name: "subnet: too small",
    config: hostLocal(sets({ subnet: "10.1.0.0/31" })),
    keys: [],
  },
  {
    ...works,
    name: "rangeStart and rangeEnd",
    config: hostLocal({ subnet: "10.1.0.0/24", rangeStart: "10.1.0.7", rangeEnd: "10.1.0.8" }),
    steps: [add("c1"), add("c2"), del("c1"), add("c3")],
    keys: ["ipam.rangeStart", "ipam.rangeEnd"],
  },
  {
    ...fails,
    name: "rangeStart outside",
    config: hostLocal({ ...v4, rangeStart: "10.2.0.1" }),
    keys: ["ipam.rangeStart"],
  },
  {
    ...fails,
    name: "rangeEnd outside",
    config: hostLocal({ ...v4, rangeEnd: "10.2.0.1" }),
    keys: ["ipam.rangeEnd"],
  },
  {
    ...fails,
    name: "rangeStart after rangeEnd",
    config: hostLocal({ ...v4, rangeStart: "10.1.0.5", rangeEnd: "10.1.0.3" }),
    keys: [],
  },
  {
    ...works,
    name: "gateway",
    config: hostLocal({ ...v4, gateway: "10.1.0.3" }),
    steps: [add("c1"), add("c2"), add("c3"), del("c1")],
    keys: ["ipam.gateway"],
  },
  {
    ...works,
    name: "gateway outside of the subnet",
    config: hostLocal({ ...v4, gateway: "10.9.0.1" }),
    keys: ["ipam.gateway"],
  },
  {
    ...fails,
    name: "gateway: no address",
    config: hostLocal({ ...v4, gateway: "gw" }),
    keys: ["ipam.gateway"],
  },
  {
    ...works,
    name: "routes",
    config: hostLocal({
      ...v4,
      routes: [
        { dst: "0.0.0.0/0" },
        { dst: "10.8.0.1/16", gw: "10.1.0.4" },
        { dst: "fd09::/64", mtu: 1400, advmss: 1300, priority: 7, table: 9, scope: 0 },
      ],
    }),
    keys: ["ipam.routes"],
  },
  {
    ...fails,
    name: "routes: no CIDR",
    config: hostLocal({ ...v4, routes: [{ dst: "10.8.0.1" }] }),
    keys: ["ipam.routes"],
  },
  {
    ...works,
    name: "resolvConf",
    prepare:
      "printf 'search a b\\n# c\\nnameserver 9.9.9.9\\nnameserver fd00::9\\ndomain d\\noptions x y\\nsortlist z\\n' >$DATA/resolv",
    config: hostLocal({ ...v4, resolvConf: "$DATA/resolv" }),
    keys: ["ipam.resolvConf"],
  },
  {
    ...fails,
    name: "resolvConf: missing",
    config: hostLocal({ ...v4, resolvConf: "$DATA/none" }),
    keys: ["ipam.resolvConf"],
  },
  { ...fails, name: "dataDir: a number", config: hostLocal({ ...v4, dataDir: 5 }), keys: [] },
  {
    ...works,
    name: "args.cni.ips",
    config: hostLocal(sets({ subnet: "10.1.0.0/24" }, v6), {
      args: { cni: { ips: ["10.1.0.77", "fd00:1::77"] } },
    }),
    keys: ["args.cni.ips"],
  },
  {
    ...fails,
    name: "args.cni.ips: no address",
    config: hostLocal(v4, { args: { cni: { ips: ["x"] } } }),
    keys: ["args.cni.ips"],
  },
  {
    ...fails,
    name: "args.cni.ips: the gateway",
    config: hostLocal(v4, { args: { cni: { ips: ["10.1.0.1"] } } }),
    keys: ["args.cni.ips"],
  },
  {
    ...fails,
    name: "args.cni.ips: in no range",
    config: hostLocal(v4, { args: { cni: { ips: ["10.3.0.1"] } } }),
    keys: ["args.cni.ips"],
  },
  {
    ...works,
    name: "runtimeConfig.ips",
    config: hostLocal(v4, { runtimeConfig: { ips: ["10.1.0.5/24"] } }),
    keys: ["runtimeConfig.ips"],
  },
  {
    ...fails,
    name: "runtimeConfig.ips: broadcast",
    config: hostLocal(v4, { runtimeConfig: { ips: ["10.1.0.7"] } }),
    keys: ["runtimeConfig.ips"],
  },
  {
    ...works,
    name: "runtimeConfig.ipRanges",
    config: hostLocal(v4, { runtimeConfig: { ipRanges: [[{ subnet: "10.7.0.0/24" }], [v6]] } }),
    keys: ["runtimeConfig.ipRanges"],
  },
  {
    ...fails,
    name: "runtimeConfig.ipRanges: overlap",
    config: hostLocal(v4, { runtimeConfig: { ipRanges: [[{ subnet: "10.1.0.0/24" }]] } }),
    keys: ["runtimeConfig.ipRanges"],
  },
  {
    ...works,
    name: "CNI_ARGS IP",
    config: hostLocal(v4),
    args: "IP=10.1.0.6",
    keys: ["CNI_ARGS.IP"],
  },
  {
    ...fails,
    name: "CNI_ARGS IP: no address",
    config: hostLocal(v4),
    args: "IP=x",
    keys: ["CNI_ARGS.IP"],
  },
  {
    ...works,
    name: "dual stack, several ranges in a set, until they wrap",
    config: hostLocal({
      ranges: [
        [{ subnet: "10.1.0.0/30" }, { subnet: "10.2.0.0/30" }],
        [{ subnet: "fd00:1::/120", rangeEnd: "fd00:1::9" }],
      ],
    }),
    steps: [
      add("c1"),
      add("c2"),
      del("c1"),
      del("c2"),
      add("c3"),
      add("c4"),
      check("c3"),
      del("c3"),
    ],
    keys: ["ipam.ranges"],
  },
  {
    ...works,
    name: "two interfaces of a container",
    config: hostLocal(v4),
    steps: [
      add("c1"),
      add("c1", "net1"),
      del("c1"),
      check("c1", "net1"),
      del("c1", "net1"),
      del("c1", "net1"),
    ],
    keys: [],
  },
  {
    ...works,
    name: "exhausted",
    config: hostLocal({ subnet: "10.1.0.0/30" }),
    steps: [add("c1"), add("c2"), del("c1"), add("c2")],
    keys: [],
  },
  {
    ...works,
    name: "ADD of the same attachment again",
    config: hostLocal(v4),
    steps: [add("c1"), add("c1"), del("c1")],
    keys: [],
  },
  {
    ...works,
    name: "files of others and of old versions",
    prepare:
      "mkdir $DATA/blue; cd $DATA/blue; printf c1 >10.1.0.3; printf 'c1\\r\\neth0\\r\\nx' >10.1.0.4; : >10.1.0.5; printf '10.1.0.2' >last_reserved_ip.0",
    config: hostLocal(v4),
    steps: [add("c2"), del("c1"), add("c1"), check("c1"), del("c1")],
    keys: [],
  },
];

const staticIpam = (ipam: object, more: object = {}) => ({
  ...more,
  ipam: { type: "static", ...ipam },
});
const addresses = [{ address: "10.0.0.5/24", gateway: "10.0.0.1" }, { address: "fd00::5/64" }];
const good = { type: "static", outcome: "works", steps: attachment } as const;
const bad = { type: "static", outcome: "fails" } as const;

const staticCases: readonly Case[] = [
  {
    ...good,
    name: "addresses",
    config: staticIpam({ addresses }),
    keys: ["ipam.addresses", "ipam.addresses.gateway"],
  },
  {
    ...bad,
    name: "addresses: no prefix length",
    config: staticIpam({ addresses: [{ address: "10.0.0.5" }] }),
    keys: ["ipam.addresses"],
  },
  {
    ...bad,
    name: "addresses: gateway is none",
    config: staticIpam({ addresses: [{ address: "10.0.0.5/24", gateway: "x" }] }),
    keys: ["ipam.addresses.gateway"],
  },
  {
    ...good,
    name: "routes",
    config: staticIpam({
      addresses,
      routes: [{ dst: "0.0.0.0/0" }, { dst: "10.9.0.0/16", gw: "10.0.0.9", mtu: 1300 }],
    }),
    keys: ["ipam.routes"],
  },
  {
    ...bad,
    name: "routes: no CIDR",
    config: staticIpam({ addresses, routes: [{ dst: "default" }] }),
    keys: ["ipam.routes"],
  },
  {
    ...good,
    name: "dns",
    config: staticIpam({
      addresses,
      dns: { nameservers: ["1.1.1.1"], domain: "d", search: ["a"], options: ["o"] },
    }),
    keys: ["ipam.dns"],
  },
  {
    ...bad,
    name: "dns: no list",
    config: staticIpam({ addresses, dns: { nameservers: "1.1.1.1" } }),
    keys: ["ipam.dns"],
  },
  {
    ...good,
    name: "args.cni.ips",
    config: staticIpam({ addresses }, { args: { cni: { ips: ["10.7.0.1/24", "fd07::1/64"] } } }),
    keys: ["args.cni.ips"],
  },
  {
    ...bad,
    name: "args.cni.ips: no prefix length",
    config: staticIpam({ addresses }, { args: { cni: { ips: ["10.7.0.1"] } } }),
    keys: ["args.cni.ips"],
  },
  {
    ...good,
    name: "runtimeConfig.ips",
    config: staticIpam(
      { addresses },
      { args: { cni: { ips: ["10.7.0.1/24"] } }, runtimeConfig: { ips: ["10.8.0.1/24"] } },
    ),
    args: "IP=10.3.0.4/24",
    keys: ["runtimeConfig.ips"],
  },
  {
    ...bad,
    name: "runtimeConfig.ips: no prefix length",
    config: staticIpam({ addresses }, { runtimeConfig: { ips: ["10.8.0.1"] } }),
    keys: ["runtimeConfig.ips"],
  },
  {
    ...good,
    name: "CNI_ARGS IP and GATEWAY",
    config: staticIpam({ addresses }),
    args: "IP=10.3.0.4/24,fd01::1/64;GATEWAY=10.0.0.7,10.3.0.1,10.3.0.2,fd01::2",
    keys: ["CNI_ARGS.IP", "CNI_ARGS.GATEWAY"],
  },
  {
    ...bad,
    name: "CNI_ARGS IP: no prefix length",
    config: staticIpam({ addresses }),
    args: "IP=10.3.0.4",
    keys: ["CNI_ARGS.IP"],
  },
  {
    ...bad,
    name: "CNI_ARGS GATEWAY: no address",
    config: staticIpam({ addresses }),
    args: "GATEWAY=x",
    keys: ["CNI_ARGS.GATEWAY"],
  },
  { ...good, name: "nothing at all", config: staticIpam({}), keys: [] },
];

compareWithReference("host-local: ", hostLocalCases, {
  // Without dataDir the plugin would write outside of the test's folder; every case compares that folder's files.
  keys: [
    ..."ranges subnet rangeStart rangeEnd gateway routes resolvConf"
      .split(" ")
      .map((key) => `ipam.${key}`),
    ..."args.cni.ips runtimeConfig.ips runtimeConfig.ipRanges CNI_ARGS.IP".split(" "),
  ],
});
compareWithReference("static: ", staticCases, {
  keys: [
    ..."addresses addresses.gateway routes dns".split(" ").map((key) => `ipam.${key}`),
    ..."args.cni.ips runtimeConfig.ips CNI_ARGS.IP CNI_ARGS.GATEWAY".split(" "),
  ],
});
