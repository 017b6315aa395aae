import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { Link } from "../../lib/netlink/model.ts";
import type { PluginCall } from "./plugin.ts";

const IFF_PROMISC = 0x100;

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

export async function saveBorrowed(call: PluginCall, borrowed: Borrowed): Promise<void> {
  // Through JSON, so that absent keys are absent and the value is what a later process reads.
  await call.state.save(JSON.parse(JSON.stringify(borrowed)) as JsonObject);
}

/** What to remember of an interface. */
export function rememberLink(link: Link): Before {
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
    promisc: (link.flags & IFF_PROMISC) !== 0,
    allmulti: link.allmulti,
  };
}
