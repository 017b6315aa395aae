import { z } from "zod";
import type { Link } from "../../lib/netlink/model.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { optional } from "./shared/config.ts";
import { macField, requestedMac } from "./shared/mac.ts";
import { makeLink } from "./shared/made-link.ts";
import { type MadeType, madeLinkPlugin } from "./shared/made-type.ts";
import { findMaster, masterDrift, requireMtuFits } from "./shared/master.ts";
import { modeField, mtuField } from "./shared/type-fields.ts";

/** MACVLAN_MODE_* of linux/if_link.h. */
const modes = { private: 1, vepa: 2, bridge: 4, passthru: 8 } as const;

const schema = z.object({
  master: optional(z.string()),
  mode: modeField(modes, "bridge"),
  mtu: mtuField,
  mac: optional(macField),
  linkInContainer: optional(z.boolean()),
  bcqueuelen: optional(z.int().min(0).max(0xffffffff)),
});
type Config = z.output<typeof schema>;

async function make(call: PluginCall, config: Config): Promise<Link> {
  const master = await findMaster(call, config);
  requireMtuFits(call, config.mtu, master.link);
  const mac = requestedMac(call, config.mac);
  return makeLink(call, master.socket, {
    link: master.link.index,
    data: {
      kind: "macvlan",
      mode: modes[config.mode],
      ...(config.bcqueuelen ? { bcQueueLength: config.bcqueuelen } : {}),
    },
    ...(mac === undefined ? {} : { mac }),
    ...(config.mtu === undefined ? {} : { mtu: config.mtu }),
  });
}

async function drift(call: PluginCall, config: Config, link: Link): Promise<string | undefined> {
  if (link.data?.kind !== "macvlan" || link.data.mode !== modes[config.mode]) {
    return `its mode is not "${config.mode}"`;
  }
  const { bcQueueLength } = link.data;
  if (config.bcqueuelen && bcQueueLength !== config.bcqueuelen) {
    return `its bcqueuelen is ${bcQueueLength ?? "unknown"}, not ${config.bcqueuelen}`;
  }
  return masterDrift(call, config, link);
}

const type: MadeType<Config> = {
  type: "macvlan",
  schema,
  ipam: "optional",
  dns: "configuration",
  notify: { arp: true, ndisc: true },
  make,
  drift,
};

/** The reference's macvlan: an interface with its own hardware address on a lower device, without a bridge. */
export const macvlan: Plugin = madeLinkPlugin(type);
