import { z } from "zod";
import type { Link } from "../../lib/netlink/model.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { makeLink, requireSandbox } from "./shared/made-link.ts";
import { type MadeType, madeLinkPlugin } from "./shared/made-type.ts";

const schema = z.object({});
type Config = z.output<typeof schema>;

async function make(call: PluginCall): Promise<Link> {
  return makeLink(call, requireSandbox(call).rtnl, { data: { kind: "dummy" } });
}

async function drift(_call: PluginCall, _config: Config, link: Link): Promise<string | undefined> {
  return link.kind === "dummy" ? undefined : "it is not a dummy interface";
}

const type: MadeType<Config> = {
  type: "dummy",
  schema,
  ipam: "required",
  dns: "ipam",
  notify: { arp: false, ndisc: false },
  make,
  drift,
};

/** The reference's dummy: an interface that leads nowhere and carries addresses. */
export const dummy: Plugin = madeLinkPlugin(type);
