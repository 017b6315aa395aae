import { z } from "zod";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { optional } from "./shared/config.ts";
import { makeLink } from "./shared/made-link.ts";
import { type MadeType, madeLinkPlugin } from "./shared/made-type.ts";
import { findMaster, type Master, masterDrift } from "./shared/master.ts";
import { modeField, mtuField } from "./shared/type-fields.ts";

/** IPVLAN_MODE_* of linux/if_link.h. */
const modes = { l2: 0, l3: 1, l3s: 2 } as const;

const schema = z.object({
  master: optional(z.string()),
  mode: modeField(modes, "l2"),
  mtu: mtuField,
  linkInContainer: optional(z.boolean()),
});
type Config = z.output<typeof schema>;

/** Chained after another plugin, the master is the one interface of its result. */
async function masterOf(call: PluginCall, config: Config): Promise<Master> {
  if (config.master !== undefined && config.master !== "") return findMaster(call, config);
  if (call.prevResult === undefined) return findMaster(call, config);
  const [only, ...others] = call.prevResult.interfaces;
  if (only !== undefined && others.length === 0) {
    return findMaster(call, { ...config, master: only.name });
  }
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": ipvlan after another plugin: its result has ${call.prevResult.interfaces.length} interfaces, must be one: set "master"`,
  );
}

async function make(call: PluginCall, config: Config): Promise<Link> {
  const master = await masterOf(call, config);
  return makeLink(call, master.socket, {
    link: master.link.index,
    data: { kind: "ipvlan", mode: modes[config.mode] },
    ...(config.mtu === undefined ? {} : { mtu: config.mtu }),
  });
}

/** Without an IPAM plugin of its own it takes over the addresses of the plugin before it. */
function inherited(call: PluginCall): CniResult | undefined {
  const previous = call.prevResult;
  return call.ipam === undefined && previous !== undefined && previous.ips.length > 0
    ? previous
    : undefined;
}

async function drift(call: PluginCall, config: Config, link: Link): Promise<string | undefined> {
  if (link.data?.kind !== "ipvlan" || link.data.mode !== modes[config.mode]) {
    return `its mode is not "${config.mode}"`;
  }
  return masterDrift(call, config, link);
}

const type: MadeType<Config> = {
  type: "ipvlan",
  schema,
  ipam: "required",
  dns: "configuration",
  notify: { arp: true, ndisc: true },
  inherited,
  make,
  drift,
};

/** The reference's ipvlan: an interface with addresses of its own behind the hardware address of a lower device. */
export const ipvlan: Plugin = madeLinkPlugin(type);
