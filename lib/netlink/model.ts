/**
 * Links, addresses, routes, rules and neighbours as values: what the codecs parse to and emit from, and what plugins work with.
 * Addresses are text (`10.0.0.1`, `fd00::1`), prefixes are text in CIDR form, hardware addresses lower-case with colons.
 */

export type LinkKind =
  | "bridge"
  | "veth"
  | "macvlan"
  | "macvtap"
  | "ipvlan"
  | "vlan"
  | "dummy"
  | "vrf"
  | "ifb"
  | "tun"
  | "vxlan"
  | "bond";

/** A link as the kernel reports it (RTM_NEWLINK, linux/if_link.h). */
export interface Link {
  readonly index: number;
  readonly name: string;
  readonly altNames: readonly string[];
  /** IFLA_INFO_KIND; undefined for hardware. */
  readonly kind: string | undefined;
  /** Decoded IFLA_INFO_DATA of known kinds, keys as in LinkSpec's `data` of that kind. */
  readonly data: LinkData | undefined;
  readonly mac: string | undefined;
  readonly permanentMac: string | undefined;
  readonly mtu: number;
  readonly minMtu: number | undefined;
  readonly maxMtu: number | undefined;
  readonly txQueueLength: number | undefined;
  readonly numTxQueues: number | undefined;
  readonly numRxQueues: number | undefined;
  /** IFF_* bits (linux/if.h). */
  readonly flags: number;
  readonly up: boolean;
  readonly operState: number | undefined;
  /** Index of the bridge, vrf or bond that the link is enslaved to. */
  readonly master: number | undefined;
  /** IFLA_LINK: index of the lower device (vlan, macvlan) or of the peer (veth), valid in namespace `linkNetnsId`. */
  readonly link: number | undefined;
  readonly linkNetnsId: number | undefined;
  readonly alias: string | undefined;
  readonly group: number;
  readonly promiscuity: number | undefined;
  readonly allmulti: boolean;
  /** The XDP program that sees its packets; undefined: none. */
  readonly xdp: XdpState | undefined;
  /** Bridge port attributes, when the link is a bridge port. */
  readonly bridgePort: BridgePort | undefined;
  readonly vfs: readonly VfInfo[] | undefined;
  readonly parentDevName: string | undefined;
  readonly parentDevBusName: string | undefined;
}

/** IFLA_XDP. */
export interface XdpState {
  /** XDP_ATTACHED_*: 1 driver, 2 generic, 3 hardware, 4 several of them. */
  readonly attached: number;
  readonly program: number | undefined;
}

export interface BridgePort {
  readonly hairpin?: boolean;
  readonly isolated?: boolean;
  readonly learning?: boolean;
  readonly unicastFlood?: boolean;
}

export interface VfInfo {
  readonly vf: number;
  readonly mac: string;
  readonly vlan: number;
  readonly qos: number;
  readonly vlanProtocol: number;
  readonly spoofCheck: boolean;
  readonly trust: boolean;
  readonly linkState: number;
  readonly minTxRate: number;
  readonly maxTxRate: number;
  /** InfiniBand's: eight bytes with colons. Drivers of Ethernet cards send none. */
  readonly nodeGuid?: string;
  readonly portGuid?: string;
}

export interface BridgeData {
  readonly kind: "bridge";
  readonly vlanFiltering?: boolean;
  readonly vlanDefaultPvid?: number;
  readonly stpState?: number;
  readonly mcastSnooping?: boolean;
}
export interface VethData {
  readonly kind: "veth";
  readonly peer?: VethPeer;
}
export interface MacvlanData {
  readonly kind: "macvlan" | "macvtap";
  readonly mode?: number;
  readonly flags?: number;
  readonly bcQueueLength?: number;
}
export interface IpvlanData {
  readonly kind: "ipvlan";
  readonly mode?: number;
  readonly flags?: number;
}
export interface VlanData {
  readonly kind: "vlan";
  readonly id?: number /** Ethertype: 0x8100 or 0x88a8. */;
  readonly protocol?: number;
}
export interface VrfData {
  readonly kind: "vrf";
  readonly table?: number;
}
/** A tun or tap device as the kernel reports it; it is made by an ioctl, never by rtnetlink. */
export interface TunData {
  readonly kind: "tun";
  /** User and group that may attach to it; absent: anybody who may make one. */
  readonly owner?: number;
  readonly group?: number;
  readonly multiQueue?: boolean;
}
export interface PlainData {
  readonly kind: "dummy" | "ifb";
}
export type LinkData =
  | BridgeData
  | VethData
  | MacvlanData
  | IpvlanData
  | VlanData
  | VrfData
  | TunData
  | PlainData;

/** The pod's end of a veth pair. IFF_UP in the peer header gives ENOTCONN, so there is no `up`: set it up afterwards. */
export interface VethPeer {
  readonly name: string;
  readonly mac?: string;
  readonly mtu?: number;
  readonly netnsFd?: number;
}

/** What RTM_NEWLINK with NLM_F_CREATE|NLM_F_EXCL makes. */
export interface LinkSpec {
  readonly name: string;
  /**
   * The index the new link gets (where it is made: namespace `netnsFd`, else the socket's own); the kernel chooses one when absent.
   * Chosen beforehand, it identifies the link from the moment it exists, and the kernel does not look for `name` in the socket's own namespace.
   */
  readonly index?: number;
  readonly data: LinkData;
  readonly mac?: string;
  readonly mtu?: number;
  readonly up?: boolean;
  readonly master?: number;
  /** Index of the lower device, in the socket's own namespace (or in `linkNetnsFd`'s when given). */
  readonly link?: number;
  readonly linkNetnsId?: number;
  /** Create the link in this namespace instead of the socket's own. */
  readonly netnsFd?: number;
  readonly group?: number;
  readonly txQueueLength?: number;
  readonly alias?: string;
  readonly numTxQueues?: number;
  readonly numRxQueues?: number;
}

/** What changes on a link that exists: absent keys stay as they are. `master: 0` releases it. */
export interface LinkChange {
  readonly name?: string;
  readonly mac?: string;
  readonly mtu?: number;
  readonly up?: boolean;
  readonly promisc?: boolean;
  readonly allmulti?: boolean;
  /** false: no address resolution (IFF_NOARP). */
  readonly arp?: boolean;
  readonly multicast?: boolean;
  readonly dynamic?: boolean;
  /** Attaches an XDP program by its descriptor, -1 detaches the one that is there; `flags`: XDP_FLAGS_*. */
  readonly xdp?: { readonly fd: number; readonly flags: number };
  readonly master?: number;
  readonly netnsFd?: number;
  /** With `netnsFd`: the index that the link gets there (IFLA_NEW_IFINDEX, Linux 5.14; older kernels ignore it). */
  readonly newIndex?: number;
  readonly txQueueLength?: number;
  readonly group?: number;
  readonly alias?: string;
  /**
   * Which link-local address the kernel gives the link when it comes up (IFLA_INET6_ADDR_GEN_MODE). EAFNOSUPPORT: the link has no IPv6.
   * Takes effect after the other changes of the same message, `up` included.
   */
  readonly ipv6AddressMode?: "eui64" | "none";
}

export type LinkRef = { readonly index: number } | { readonly name: string };

/** RTM_NEWADDR (linux/if_addr.h). */
export interface Address {
  readonly index: number;
  /** CIDR form: `10.0.0.5/24`. */
  readonly address: string;
  readonly peer?: string;
  readonly broadcast?: string;
  readonly label?: string;
  readonly scope: number;
  /** IFA_F_* bits: 0x02 nodad, 0x08 dadfailed, 0x40 tentative, 0x80 permanent, 0x200 noprefixroute. */
  readonly flags: number;
}

export interface AddressSpec {
  readonly index: number;
  readonly address: string;
  /** The other end's address, of a point-to-point link. */
  readonly peer?: string;
  readonly broadcast?: string;
  readonly label?: string;
  readonly scope?: number;
  readonly flags?: number;
}

/** RTM_NEWROUTE (linux/rtnetlink.h). `destination` in CIDR form; the default route is `0.0.0.0/0` or `::/0`. */
export interface Route {
  readonly family: 4 | 6;
  readonly destination: string;
  readonly gateway: string | undefined;
  readonly index: number | undefined;
  readonly table: number;
  readonly priority: number | undefined;
  readonly scope: number;
  readonly protocol: number;
  readonly type: number;
  readonly source: string | undefined;
  readonly mtu: number | undefined;
  readonly advmss: number | undefined;
  readonly flags: number;
}

export interface RouteSpec {
  readonly destination: string;
  readonly gateway?: string;
  readonly index?: number;
  readonly table?: number;
  readonly priority?: number;
  readonly scope?: number;
  readonly protocol?: number;
  readonly type?: number;
  readonly source?: string;
  readonly mtu?: number;
  readonly advmss?: number;
  readonly onlink?: boolean;
}

/** RTM_NEWRULE (linux/fib_rules.h). */
export interface Rule {
  readonly family: 4 | 6;
  readonly priority: number | undefined;
  readonly table: number;
  readonly source: string | undefined;
  readonly destination: string | undefined;
  readonly iifName: string | undefined;
  readonly oifName: string | undefined;
  readonly mark: number | undefined;
}
export type RuleSpec = { readonly family: 4 | 6; readonly table: number } & Partial<
  Omit<Rule, "family" | "table">
>;

/** RTM_NEWNEIGH (linux/neighbour.h). */
export interface Neighbour {
  readonly index: number;
  readonly address: string;
  readonly mac: string | undefined;
  readonly state: number;
  readonly flags: number;
}

/** A VLAN on a bridge port (IFLA_AF_SPEC of AF_BRIDGE). */
export interface BridgeVlan {
  readonly id: number;
  readonly endId?: number;
  readonly pvid?: boolean;
  readonly untagged?: boolean;
}
