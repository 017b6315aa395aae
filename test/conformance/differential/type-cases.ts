import type { Case, Step } from "./world.ts";

const add: Step = { verb: "ADD", id: "c1", ifName: "eth0" };
const del: Step = { verb: "DEL", id: "c1", ifName: "eth0" };
/** Without IPAM the reference's CHECK always fails. */
const addAndDel: readonly Step[] = [add, del];

/** Addresses with their gateways. */
export const fixed = (...pairs: readonly (readonly [string, string?])[]) => ({
  type: "static",
  addresses: pairs.map(([address, gateway]) =>
    gateway === undefined ? { address } : { address, gateway },
  ),
});
export const dual = fixed(["10.1.0.2/24", "10.1.0.1"], ["fd00:1::2/64", "fd00:1::1"]);
const v4 = fixed(["10.1.0.2/24", "10.1.0.1"]);
const uplink =
  "ip link add dev0 address 0a:00:00:00:00:10 type veth peer name dev1 address 0a:00:00:00:00:11; ip link set dev0 mtu 1400 up; ip link set dev1 up";
const routes = [
  { dst: "0.0.0.0/0" },
  { dst: "10.8.0.0/16", gw: "10.1.0.9", priority: 5, table: 100 },
  { dst: "10.9.0.0/16", scope: 0 },
];

/** One case a key whose value is of the wrong kind or out of range: `[key, value, what]`. */
function refused(
  base: Pick<Case, "type" | "prepare" | "config">,
  values: readonly (readonly [string, unknown, string])[],
): Case[] {
  return values.map(([key, value, what]) => ({
    ...base,
    outcome: "fails",
    name: `${key}: ${what}`,
    config: { ...base.config, [key]: value } as Case["config"],
    keys: [key],
  }));
}

/** Hardware addresses by all three ways, right and wrong, for a type that takes them. */
function macCases(base: Pick<Case, "type" | "prepare" | "config">): Case[] {
  const works = { ...base, outcome: "works", steps: addAndDel } as const;
  const fails = { ...base, outcome: "fails" } as const;
  const runtime = (mac: string) => ({
    ...base.config,
    mac: "0a:00:00:00:00:01",
    runtimeConfig: { mac },
  });
  return [
    { ...works, name: "mac", config: { ...base.config, mac: "0a:00:00:00:00:01" }, keys: ["mac"] },
    {
      ...works,
      name: "CNI_ARGS MAC wins over mac",
      config: { ...base.config, mac: "0a:00:00:00:00:01" },
      args: "IgnoreUnknown=1;MAC=0a:00:00:00:00:02",
      keys: ["CNI_ARGS.MAC"],
    },
    {
      ...works,
      name: "runtimeConfig mac wins over CNI_ARGS MAC",
      config: runtime("0A:00:00:00:00:03"),
      args: "IgnoreUnknown=1;MAC=0a:00:00:00:00:02",
      keys: ["runtimeConfig.mac"],
    },
    { ...fails, name: "mac: none", config: { ...base.config, mac: "zz" }, keys: ["mac"] },
    { ...fails, name: "CNI_ARGS MAC: none", args: "MAC=zz", keys: ["CNI_ARGS.MAC"] },
    {
      ...fails,
      name: "runtimeConfig mac: none",
      config: runtime("zz"),
      keys: ["runtimeConfig.mac"],
    },
  ];
}

const onUplink = { type: "macvlan", prepare: uplink, config: { master: "dev0" } } as const;

export const macvlanCases: readonly Case[] = [
  {
    ...onUplink,
    outcome: "works",
    name: "dual stack with routes, dns and every number",
    config: {
      master: "dev0",
      mode: "private",
      mtu: 1300,
      bcqueuelen: 50,
      ipam: { ...dual, routes },
      dns: { nameservers: ["10.1.0.53"] },
    },
    keys: ["master", "mode", "mtu", "bcqueuelen", "dns"],
  },
  {
    ...onUplink,
    outcome: "works",
    name: "nothing but the master",
    steps: addAndDel,
    keys: ["master"],
  },
  {
    type: "macvlan",
    outcome: "works",
    name: "the default route's interface",
    prepare: `${uplink}; ip address add 192.0.2.9/24 dev dev0; ip route add default via 192.0.2.1`,
    config: {},
    steps: addAndDel,
    keys: [],
  },
  {
    type: "macvlan",
    outcome: "works",
    name: "linkInContainer",
    prepare:
      "ip -n $POD link add dev0 address 0a:00:00:00:00:10 type veth peer name dev1 address 0a:00:00:00:00:11; ip -n $POD link set dev0 up",
    config: { master: "dev0", linkInContainer: true },
    steps: addAndDel,
    keys: ["linkInContainer"],
  },
  ...["bridge", "vepa", "passthru"].map(
    (mode): Case => ({
      ...onUplink,
      outcome: "works",
      name: `mode ${mode}`,
      config: { master: "dev0", mode },
      steps: addAndDel,
      keys: mode === "bridge" ? [] : ["mode"],
    }),
  ),
  ...macCases(onUplink),
  ...refused(onUplink, [
    ["mode", "fast", "unknown"],
    ["mtu", 1401, "above the master's"],
    ["mtu", -1, "negative"],
    ["linkInContainer", true, "a master of the node"],
    ["bcqueuelen", "many", "a text"],
  ]),
  ...refused(
    {
      ...onUplink,
      prepare: `${uplink}; ip address add 192.0.2.9/24 dev dev0; ip route add default via 192.0.2.1`,
    },
    [["master", "nope", "unknown"]],
  ),
];

const ptp = { type: "ptp", config: { ipam: dual } } as const;
const outside = "ping -c1 -W1 192.0.2.2";

export const ptpCases: readonly Case[] = [
  {
    ...ptp,
    outcome: "works",
    name: "dual stack with routes and mtu",
    config: { mtu: 1300, ipam: { ...dual, routes } },
    keys: ["mtu", "ipam.routes"],
  },
  {
    ...ptp,
    outcome: "works",
    name: "dns",
    config: { ipam: { ...v4, dns: { domain: "ipam.example" } }, dns: { domain: "example.org" } },
    keys: ["dns"],
  },
  {
    ...ptp,
    outcome: "works",
    name: "ipMasq",
    config: {
      ipMasq: true,
      ipMasqBackend: "nftables",
      ipam: { ...v4, routes: [{ dst: "0.0.0.0/0" }] },
    },
    probe: outside,
    keys: ["ipMasq"],
  },
  {
    ...ptp,
    outcome: "works",
    name: "without ipMasq nobody outside answers",
    config: { ipam: { ...v4, routes: [{ dst: "0.0.0.0/0" }] } },
    probe: outside,
    keys: [],
  },
  ...refused(ptp, [
    ["mtu", "1300", "a text"],
    ["mtu", 70000, "above what a veth can have"],
    ["ipMasq", "true", "a text"],
    ["dns", { nameservers: "10.1.0.53" }, "no list"],
  ]),
  {
    ...ptp,
    outcome: "fails",
    name: "ipMasqBackend: unknown",
    config: { ...ptp.config, ipMasq: true, ipMasqBackend: "pf" },
    keys: ["ipMasqBackend"],
  },
  {
    ...ptp,
    outcome: "fails",
    name: "a route to the subnet itself, which ptp makes",
    config: { ipam: { ...v4, routes: [{ dst: "10.1.0.0/24", gw: "10.1.0.1" }] } },
    keys: [],
  },
  {
    ...ptp,
    outcome: "fails",
    name: "an address without a gateway",
    config: { ipam: fixed(["10.1.0.2/24"]) },
    keys: [],
  },
];

const tap = { type: "tap", config: {} } as const;

export const tapCases: readonly Case[] = [
  { ...tap, outcome: "works", name: "nothing but the type", steps: addAndDel, keys: [] },
  {
    ...tap,
    outcome: "works",
    name: "addresses, owner, queues and mtu",
    config: { owner: 0, multiQueue: true, mtu: 1300, ipam: v4, dns: { domain: "example.org" } },
    keys: ["owner", "multiQueue", "mtu", "dns"],
  },
  {
    ...tap,
    outcome: "works",
    name: "owner and group",
    config: { owner: 0, group: 0 },
    steps: addAndDel,
    keys: ["owner", "group"],
  },
  {
    ...tap,
    outcome: "works",
    name: "owner and group with mac and mtu",
    config: { owner: 0, group: 0, mac: "0a:00:00:00:00:01", mtu: 1300 },
    steps: addAndDel,
    keys: [],
  },
  {
    ...tap,
    outcome: "works",
    name: "bridge",
    prepare: "ip -n $POD link add br0 address 0a:00:00:00:00:20 type bridge",
    config: { bridge: "br0" },
    steps: addAndDel,
    keys: ["bridge"],
  },
  ...macCases(tap),
  ...refused(tap, [
    ["multiQueue", "true", "a text"],
    ["mtu", 5, "too small"],
    ["owner", "root", "a text"],
    ["group", -1, "negative"],
    ["bridge", "br0", "unknown"],
    ["selinuxContext", "system_u:system_r:container_t:s0", "without SELinux"],
  ]),
];

const hostDevice = { type: "host-device", prepare: uplink, config: { device: "dev0" } } as const;

export const hostDeviceCases: readonly Case[] = [
  {
    ...hostDevice,
    outcome: "works",
    name: "device with addresses, routes and dns",
    config: { device: "dev0", ipam: { ...v4, routes }, dns: { domain: "example.org" } },
    keys: ["device", "dns"],
  },
  { ...hostDevice, outcome: "works", name: "device alone", steps: addAndDel, keys: ["device"] },
  {
    ...hostDevice,
    outcome: "works",
    name: "hwaddr",
    config: { hwaddr: "0a:00:00:00:00:10" },
    steps: addAndDel,
    keys: ["hwaddr"],
  },
  { ...hostDevice, outcome: "fails", name: "hwaddr: none", config: { hwaddr: "zz" }, keys: [] },
  { ...hostDevice, outcome: "fails", name: "no key", config: {}, keys: [] },
  // Each beside a key that would do without it.
  ...refused({ ...hostDevice, config: { hwaddr: "0a:00:00:00:00:10" } }, [
    ["device", "nope", "unknown"],
  ]),
  ...refused(hostDevice, [
    ["pciBusID", "0000:ff:1f.7", "unknown"],
    ["runtimeConfig", { deviceID: "0000:ff:1f.7" }, "an unknown deviceID"],
  ]),
  {
    ...hostDevice,
    outcome: "fails",
    name: "kernelpath: elsewhere",
    config: { kernelpath: "/etc" },
    keys: [],
  },
];
