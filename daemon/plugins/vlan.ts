import { z } from "zod";
import type { Link } from "../../lib/netlink/model.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { optional } from "./shared/config.ts";
import { makeLink } from "./shared/made-link.ts";
import { type MadeType, madeLinkPlugin } from "./shared/made-type.ts";
import { findMaster, masterDrift, requireMtuFits } from "./shared/master.ts";
import { mtuField } from "./shared/type-fields.ts";

/** Ethertypes of linux/if_ether.h: customer tags and the service tags of QinQ. */
const protocols = { "802.1q": 0x8100, "802.1ad": 0x88a8 } as const;

const protocolField = optional(
  z
    .string()
    .transform((text) => text.toLowerCase())
    .refine((text) => Object.hasOwn(protocols, text), {
      error: (issue) => `"${issue.input}" is not a VLAN protocol: must be 802.1q or 802.1ad`,
    }),
).transform((text) => protocols[(text ?? "802.1q") as keyof typeof protocols]);

const schema = z.object({
  master: z.string({ error: "must name the interface to make the VLAN on" }).min(1, {
    error: "must name the interface to make the VLAN on",
  }),
  vlanId: optional(
    z.int().min(0, { error: "must be 0 to 4094" }).max(4094, { error: "must be 0 to 4094" }),
  ).transform((id) => id ?? 0),
  mtu: mtuField,
  linkInContainer: optional(z.boolean()),
  vlanProto: protocolField,
});
type Config = z.output<typeof schema>;

async function make(call: PluginCall, config: Config): Promise<Link> {
  const master = await findMaster(call, config);
  requireMtuFits(call, config.mtu, master.link);
  return makeLink(call, master.socket, {
    link: master.link.index,
    data: { kind: "vlan", id: config.vlanId, protocol: config.vlanProto },
    ...(config.mtu === undefined ? {} : { mtu: config.mtu }),
  });
}

async function drift(call: PluginCall, config: Config, link: Link): Promise<string | undefined> {
  if (link.data?.kind !== "vlan" || link.data.id !== config.vlanId) {
    return `its VLAN is not ${config.vlanId}`;
  }
  if (link.data.protocol !== config.vlanProto) {
    return `its VLAN protocol is not 0x${config.vlanProto.toString(16)}`;
  }
  return masterDrift(call, config, link);
}

const type: MadeType<Config> = {
  type: "vlan",
  schema,
  ipam: "required",
  dns: "configuration",
  notify: { arp: false, ndisc: false },
  make,
  drift,
};

/** The reference's vlan, and with `vlanProto` the service tags of QinQ: one VLAN of a lower device as the pod's interface. */
export const vlan: Plugin = madeLinkPlugin(type);
