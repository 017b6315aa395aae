import { z } from "zod";
import { decode } from "../../../lib/base/decode.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { iff } from "../../../lib/netlink/link-flags.ts";
import type { Address, Link } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { PluginCall } from "../plugin.ts";

/** IFA_F_* of linux/if_addr.h: an address without an end, and what is an admin's wish and not the kernel's report. */
const permanent = 0x80;
const wishes = 0x02 | 0x10 | 0x100 | 0x200 | 0x400;
/** RT_SCOPE_LINK of linux/rtnetlink.h. */
const linkScope = 253;

const addressSchema = z.object({
  address: z.string(),
  peer: z.string().optional(),
  broadcast: z.string().optional(),
  label: z.string().optional(),
  scope: z.int(),
  flags: z.int(),
});

/** An address that the interface had on the node. */
export type AddressBefore = Readonly<z.output<typeof addressSchema>>;

const beforeSchema = z.object({
  index: z.int(),
  name: z.string(),
  altNames: z.array(z.string()),
  alias: z.string(),
  mac: z.string().optional(),
  mtu: z.int(),
  txQueueLength: z.int().optional(),
  group: z.int(),
  up: z.boolean(),
  promisc: z.boolean(),
  allmulti: z.boolean(),
  arp: z.boolean().optional(),
  multicast: z.boolean().optional(),
  dynamic: z.boolean().optional(),
  /** Records of older versions lack these. */
  addresses: z.array(addressSchema).default([]),
  master: z.object({ name: z.string() }).optional(),
  xdpProgram: z.int().optional(),
});

/** What the interface was like before it was borrowed, and what it goes back to. */
export type Before = Readonly<z.output<typeof beforeSchema>>;

const vfSchema = z.object({
  pfAddress: z.string(),
  vf: z.int(),
  mac: z.string(),
  vlan: z.int(),
  qos: z.int(),
  vlanProtocol: z.int(),
  spoofCheck: z.boolean(),
  trust: z.boolean(),
  linkState: z.int(),
  minTxRate: z.int(),
  maxTxRate: z.int(),
  nodeGuid: z.string().exactOptional(),
  portGuid: z.string().exactOptional(),
});

/** What the physical function said of the virtual one before it was borrowed. */
export type VfBefore = Readonly<z.output<typeof vfSchema>>;

const deviceSchema = z.object({ bus: z.string(), name: z.string() });

const schema = z.object({
  /** Names the device among the claims of the node. */
  key: z.string(),
  device: deviceSchema.optional(),
  /** The driver it was bound to. */
  driver: z.string().optional(),
  /** A virtual link of this kind ends with its namespace; hardware comes back. */
  kind: z.string().optional(),
  permanentMac: z.string().optional(),
  /** The index it gets in the sandbox, chosen before it moves. */
  podIndex: z.int().optional(),
  before: beforeSchema.optional(),
  vf: vfSchema.optional(),
  /** The device information file that this attachment wrote. */
  deviceInfoPath: z.string().optional(),
  /** Everything was given back: a later DEL leaves the device alone. */
  returned: z.boolean(),
});

/** What an attachment remembers of a device that it borrowed; saved before anything happens to the device. */
export type Borrowed = Readonly<z.output<typeof schema>>;

/** The saved state; undefined when nothing was borrowed. Throws a DecodeError when the record was tampered with. */
export function loadBorrowed(call: PluginCall): Borrowed | undefined {
  const state = call.state.load();
  return state === undefined ? undefined : decode(schema, state, "state of a borrowed device");
}

/** As loadBorrowed, of any plugin's state; undefined also when it is about something else. */
export function borrowedIn(state: JsonObject): Borrowed | undefined {
  return schema.safeParse(state).data;
}

export async function saveBorrowed(call: PluginCall, borrowed: Borrowed): Promise<void> {
  // Through JSON, so that absent keys are absent and the value is what a later process reads.
  await call.state.save(JSON.parse(JSON.stringify(borrowed)) as JsonObject);
}

/** What to remember of an interface of the node. */
export async function rememberLink(host: Rtnetlink, link: Link): Promise<Before> {
  const master = link.master === undefined ? undefined : await host.getLink({ index: link.master });
  return {
    index: link.index,
    name: link.name,
    altNames: [...link.altNames],
    alias: link.alias ?? "",
    ...(link.mac === undefined ? {} : { mac: link.mac }),
    mtu: link.mtu,
    ...(link.txQueueLength === undefined ? {} : { txQueueLength: link.txQueueLength }),
    group: link.group,
    up: link.up,
    ...flagsOf(link),
    addresses: (await host.addresses(link.index)).filter(isWished).map(rememberAddress),
    ...(master === undefined ? {} : { master: { name: master.name } }),
    ...(link.xdp?.program === undefined ? {} : { xdpProgram: link.xdp.program }),
  };
}

/** The flags that somebody can set, but for up. */
export function flagsOf({ flags, allmulti }: Link) {
  return {
    promisc: (flags & iff.promisc) !== 0,
    allmulti,
    arp: (flags & iff.noArp) === 0,
    multicast: (flags & iff.multicast) !== 0,
    dynamic: (flags & iff.dynamic) !== 0,
  };
}

/**
 * Whether an address was given to stay. One with a lifetime is DHCP's or a router's, who renew it; the kernel makes IPv6 link-local ones by itself.
 */
export function isWished({ address, scope, flags }: Address): boolean {
  return (flags & permanent) !== 0 && !(address.includes(":") && scope === linkScope);
}

function rememberAddress({
  address,
  peer,
  broadcast,
  label,
  scope,
  flags,
}: Address): AddressBefore {
  return {
    address,
    ...(peer === undefined ? {} : { peer }),
    ...(broadcast === undefined ? {} : { broadcast }),
    ...(label === undefined ? {} : { label }),
    scope,
    flags: flags & wishes,
  };
}
