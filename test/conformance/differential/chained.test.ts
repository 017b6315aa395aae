import { after } from "node:test";
import type { JsonObject } from "../../../lib/base/json.ts";
import { compareWithReference } from "./compare.ts";
import { attachment, type Case, endPodnetSide, type Step } from "./world.ts";

after(endPodnetSide);

/** What a bridge plugin leaves for the next in the chain, made by hand: a veth pair with two addresses in the pod. */
const prepare = `
ip link add v0 address 0a:00:00:00:00:01 type veth peer name eth0 address 0a:00:00:00:00:02 netns $POD
ip link set v0 up
ip -n $POD link set lo up
ip -n $POD link set eth0 up
ip -n $POD address add 10.1.0.2/24 dev eth0
ip -n $POD address add fd00:1::2/64 dev eth0 nodad
ip -n $POD route add default via 10.1.0.1
ip -n $POD route add default via fd00:1::1
`;
const prevResult: JsonObject = {
  cniVersion: "1.1.0",
  interfaces: [{ name: "v0" }, { name: "eth0", mac: "0a:00:00:00:00:02", sandbox: "$NETNS" }],
  ips: [
    { address: "10.1.0.2/24", gateway: "10.1.0.1", interface: 1 },
    { address: "fd00:1::2/64", gateway: "fd00:1::1", interface: 1 },
  ],
};
const steps = attachment;
/** CHECK and DEL of a configuration that ADD refuses say nothing: the chain ends there. */
const addOnly: readonly Step[] = attachment.slice(0, 1);

function good(type: string, config: JsonObject, options: Partial<Case> = {}): Case {
  const { dataDir, ...named } = config;
  return {
    name: JSON.stringify(named),
    type,
    outcome: "works",
    prepare,
    steps,
    config: { prevResult, ...config, ...(dataDir === undefined ? {} : { dataDir }) },
    keys: Object.keys(named),
    ...options,
  };
}

function bad(type: string, config: JsonObject, options: Partial<Case> = {}): Case {
  return good(type, config, { outcome: "fails", steps: addOnly, ...options });
}

const tuned = (config: JsonObject): JsonObject => ({ dataDir: "$DATA/tuning", ...config });
const tuning = [
  good("tuning", tuned({})),
  good(
    "tuning",
    tuned({ sysctl: { "net.core.somaxconn": "500", "net.ipv4.conf.eth0.arp_notify": "1" } }),
  ),
  good("tuning", tuned({ sysctl: { "net.ipv4.conf.IFNAME.arp_notify": "1" } })),
  good("tuning", tuned({ mac: "0a:00:00:00:00:05" })),
  good("tuning", tuned({ promisc: true })),
  good("tuning", tuned({ promisc: false }), { keys: [] }),
  good("tuning", tuned({ mtu: 1400 })),
  good("tuning", tuned({ mtu: 0 }), { keys: [] }),
  good("tuning", tuned({ txQLen: 77 })),
  good("tuning", tuned({ txQLen: 0 })),
  good("tuning", tuned({ allmulti: true })),
  good("tuning", tuned({ allmulti: false }), { keys: [] }),
  good("tuning", tuned({ args: { cni: { mac: "0a:00:00:00:00:06" } } }), {
    keys: ["args.cni.mac"],
  }),
  good("tuning", tuned({ runtimeConfig: { mac: "0a:00:00:00:00:07" } }), {
    keys: ["runtimeConfig.mac"],
  }),
  good(
    "tuning",
    tuned({
      mac: "0a:00:00:00:00:05",
      runtimeConfig: { mac: "0a:00:00:00:00:07" },
      args: { cni: { mac: "0a:00:00:00:00:06" } },
    }),
    { keys: ["args.cni.mac"] },
  ),
  good(
    "tuning",
    tuned({
      mac: "0a:00:00:00:00:05",
      mtu: 1300,
      promisc: true,
      allmulti: true,
      txQLen: 5,
      sysctl: { "net.core.somaxconn": "99" },
    }),
  ),
  bad("tuning", tuned({ sysctl: { "kernel.hostname": "x" } })),
  bad("tuning", tuned({ sysctl: { "net.core.somaxconn": 5 } })),
  bad("tuning", tuned({ sysctl: { "net.none": "5" } })),
  bad("tuning", tuned({ mac: "xx" })),
  bad("tuning", tuned({ promisc: "yes" })),
  bad("tuning", tuned({ mtu: 70_000 })),
  bad("tuning", tuned({ mtu: -5 })),
  bad("tuning", tuned({ txQLen: "x" })),
  bad("tuning", tuned({ allmulti: 1 })),
  bad("tuning", tuned({ args: { cni: { mac: "xx" } } }), { keys: ["args.cni.mac"] }),
  bad("tuning", tuned({ runtimeConfig: { mac: "xx" } }), { keys: ["runtimeConfig.mac"] }),
];

const bandwidth = [
  good("bandwidth", {}),
  good("bandwidth", { ingressRate: 1_000_000, ingressBurst: 80_000 }),
  good("bandwidth", { egressRate: 1_000_000, egressBurst: 80_000 }),
  good("bandwidth", {
    ingressRate: 1_000_000,
    ingressBurst: 80_000,
    egressRate: 2_000_000,
    egressBurst: 160_000,
  }),
  good("bandwidth", { ingressRate: 0, ingressBurst: 0 }, { keys: [] }),
  good("bandwidth", { ingressRate: 100_000_000_000, ingressBurst: 4_000_000_000 }),
  good(
    "bandwidth",
    {
      runtimeConfig: {
        bandwidth: {
          ingressRate: 1_000_000_000,
          ingressBurst: 4_294_967_295,
          egressRate: 1_000_000_000,
          egressBurst: 4_294_967_295,
        },
      },
    },
    { keys: ["runtimeConfig.bandwidth"] },
  ),
  good(
    "bandwidth",
    {
      ingressRate: 8000,
      ingressBurst: 8000,
      runtimeConfig: { bandwidth: { egressRate: 8000, egressBurst: 8000 } },
    },
    { keys: ["ingressRate"] },
  ),
  good(
    "bandwidth",
    { ingressRate: 8000, ingressBurst: 2_147_483_647 },
    { name: "a burst of days" },
  ),
  bad("bandwidth", { ingressRate: 1000 }),
  bad("bandwidth", { ingressBurst: 1000 }),
  bad("bandwidth", { egressRate: 1000 }),
  bad("bandwidth", { egressBurst: 1000 }),
  bad("bandwidth", { ingressRate: 8000, ingressBurst: 34_359_738_360 }, { keys: [] }),
  bad(
    "bandwidth",
    { runtimeConfig: { bandwidth: { ingressRate: -1, ingressBurst: 8 } } },
    { keys: ["runtimeConfig.bandwidth"] },
  ),
];

const sbr = [
  good("sbr", {}),
  good("sbr", { table: 77 }),
  good("sbr", { table: 254 }),
  good(
    "sbr",
    {},
    {
      name: "a rule leads to table 100",
      prepare: `${prepare}ip -n $POD rule add from 10.9.9.9 lookup 100`,
    },
  ),
  good(
    "sbr",
    {},
    {
      name: "routes of its own",
      prepare: `${prepare}ip -n $POD route add 10.20.0.0/16 via 10.1.0.9; ip -n $POD route add 10.30.0.0/16 dev eth0; ip -n $POD route add fd00:2::/64 via fd00:1::9`,
    },
  ),
  bad("sbr", { table: 0 }),
  bad("sbr", { table: "x" }),
];

compareWithReference("tuning: ", tuning, {
  keys: [
    ..."sysctl mac promisc mtu txQLen allmulti".split(" "),
    "args.cni.mac",
    "runtimeConfig.mac",
  ],
});
compareWithReference("bandwidth: ", bandwidth, {
  keys: [
    ..."ingressRate ingressBurst egressRate egressBurst".split(" "),
    "runtimeConfig.bandwidth",
  ],
});
// "gateways" and "addSourceHints" are in the documentation of later versions: 1.9.1 ignores them, and so does podnet.
compareWithReference("sbr: ", sbr, { keys: ["table"] });
