import { z } from "zod";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { Link } from "../../lib/netlink/model.ts";
import type { Plugin, PluginCall, Sandbox } from "./plugin.ts";
import { optional } from "./shared/config.ts";
import { macField, requestedMac } from "./shared/mac.ts";
import { chooseIndex, madeLinkState, requireLink, requireSandbox } from "./shared/made-link.ts";
import { type MadeType, madeLinkPlugin } from "./shared/made-type.ts";
import { mtuWithin } from "./shared/type-fields.ts";
import { makeTap } from "./tap-device.ts";

const id = optional(z.int().min(0).max(0xfffffffe));
const text = optional(z.string()).transform((value) => (value === "" ? undefined : value));

const schema = z.object({
  multiQueue: optional(z.boolean()),
  mtu: mtuWithin(68, 65521),
  mac: optional(macField),
  owner: id,
  group: id,
  selinuxContext: text,
  bridge: text,
});
type Config = z.output<typeof schema>;

async function make(call: PluginCall, config: Config): Promise<Link> {
  const sandbox = requireSandbox(call);
  const master = await bridgeOf(call, sandbox, config);
  const mac = requestedMac(call, config.mac);
  const index = chooseIndex();
  await call.state.save(madeLinkState(index));
  makeTap(sandbox.netns, {
    name: call.ifName,
    index,
    multiQueue: config.multiQueue ?? false,
    owner: config.owner,
    group: config.group,
    selinuxContext: config.selinuxContext,
  });
  await sandbox.rtnl.changeLink(index, {
    ...(config.mtu === undefined ? {} : { mtu: config.mtu }),
    ...(mac === undefined ? {} : { mac }),
    ...(master === undefined ? {} : { master: master.index }),
  });
  return requireLink(sandbox.rtnl, { index, name: call.ifName });
}

/** The bridge of the sandbox (not of the node) that the device becomes a port of. */
async function bridgeOf(
  call: PluginCall,
  sandbox: Sandbox,
  config: Config,
): Promise<Link | undefined> {
  if (config.bridge === undefined) return undefined;
  const bridge = await sandbox.rtnl.getLink({ name: config.bridge });
  if (bridge?.kind === "bridge") return bridge;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": bridge "${config.bridge}": no such bridge in the sandbox`,
  );
}

async function drift(call: PluginCall, config: Config, link: Link): Promise<string | undefined> {
  if (link.data?.kind !== "tun") return "it is not a tap device";
  const difference = [
    ["owner", link.data.owner, config.owner],
    ["group", link.data.group, config.group],
    ["multiQueue", link.data.multiQueue, config.multiQueue ?? false],
  ].find(([, is, wanted]) => is !== wanted);
  if (difference !== undefined) {
    const [key, is, wanted] = difference;
    return `its ${key} is ${is ?? "nobody"}, not ${wanted ?? "nobody"}`;
  }
  const bridge = await bridgeOf(call, requireSandbox(call), config);
  if (bridge === undefined || link.master === bridge.index) return undefined;
  return `it is not a port of bridge "${bridge.name}"`;
}

const type: MadeType<Config> = {
  type: "tap",
  schema,
  ipam: "optional",
  dns: "configuration",
  notify: { arp: true, ndisc: false },
  make,
  drift,
};

/** The reference's tap: a device whose other end is a process, such as a virtual machine's. */
export const tap: Plugin = madeLinkPlugin(type);
