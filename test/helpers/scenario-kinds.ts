import type { Place } from "./lab.ts";

/** One way to be attached: the networks that a pod asks for. */
export interface AttachmentKind {
  readonly name: string;
  readonly networks: readonly unknown[];
  /** Its interface ends with the namespace: a virtual link that plays hardware here, which the kernel would bring back. */
  readonly endsWithNamespace?: true;
}

const ports = [{ hostPort: 8080, containerPort: 80, protocol: "TCP" }];

export const attachmentKinds: readonly AttachmentKind[] = [
  { name: "bridge", networks: ["bridge"] },
  { name: "bridge, both families, ipMasq", networks: ["masked"] },
  { name: "bridge, macspoofchk", networks: ["spoof"] },
  { name: "ptp, ipMasq", networks: ["pair"] },
  { name: "macvlan", networks: ["upper"] },
  { name: "tap", networks: ["tap"] },
  { name: "host-device", networks: ["device"], endsWithNamespace: true },
  { name: "loopback", networks: ["loop"] },
  { name: "bridge, tuning", networks: ["tuned"] },
  { name: "bridge, portmap", networks: [{ name: "ports", portMappings: ports }] },
  { name: "bridge, bandwidth", networks: ["slow"] },
  { name: "ptp, sbr", networks: ["sourced"] },
  { name: "executable", networks: ["holder"] },
  { name: "bridge, executable", networks: ["chained"] },
  { name: "three at once", networks: ["bridge", "upper", "masked"] },
];

/** Parameters of the networks, by name. */
export function kindNetworks(dataDir: string): Record<string, object> {
  const ipam = (number: number, ...more: string[]) => ({
    type: "host-local",
    dataDir,
    ranges: [[{ subnet: `10.${number}.0.0/16` }], ...more.map((subnet) => [{ subnet }])],
  });
  const bridge = (number: number) => ({
    type: "bridge",
    bridge: `br-${number}`,
    isGateway: true,
    ipam: ipam(number),
  });
  return {
    bridge: bridge(101),
    masked: { ...bridge(102), ipMasq: true, ipam: ipam(102, "fd02::/64") },
    spoof: { ...bridge(103), macspoofchk: true },
    pair: { type: "ptp", ipMasq: true, ipam: ipam(104) },
    upper: { type: "macvlan", master: "br-low", ipam: ipam(105) },
    tap: { type: "tap", ipam: ipam(106) },
    device: { type: "host-device", device: "hd0", ipam: ipam(107) },
    loop: { type: "loopback" },
    tuned: {
      plugins: [
        bridge(108),
        {
          type: "tuning",
          sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" },
          mtu: 1400,
          promisc: true,
        },
      ],
    },
    ports: {
      plugins: [bridge(109), { type: "portmap", snat: true, capabilities: { portMappings: true } }],
    },
    slow: {
      plugins: [
        bridge(110),
        {
          type: "bandwidth",
          ingressRate: 1_000_000,
          ingressBurst: 1_000_000,
          egressRate: 1_000_000,
          egressBurst: 1_000_000,
        },
      ],
    },
    sourced: { plugins: [{ type: "ptp", ipam: ipam(111) }, { type: "sbr" }] },
    holder: { type: "holder" },
    chained: { plugins: [bridge(112), { type: "holder" }] },
  };
}

/** What the networks stand on. */
export function prepareNode(node: Place): void {
  const script = [
    "ip link add br-low type bridge",
    "ip link set br-low up",
    "ip link add hd0 type veth peer name hd1",
    "ip link set hd0 up",
    "ip link set hd1 up",
  ];
  node.run("sh", "-ec", script.join("\n"));
}
