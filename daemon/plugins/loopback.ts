import { parseCidr } from "../../lib/base/ip.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Address, Link } from "../../lib/netlink/model.ts";
import type { Plugin, PluginCall, Sandbox } from "./plugin.ts";
import { drift } from "./shared/interface.ts";
import { requireSandbox } from "./shared/made-link.ts";

/** The sandbox's `lo`, up. Whatever interface name is asked for, it is this one, as in the reference. */
export const loopback: Plugin = { add, del, check };

const name = "lo";

async function add(call: PluginCall): Promise<CniResult> {
  const sandbox = requireSandbox(call);
  const link = await requireLoopback(sandbox);
  await sandbox.rtnl.changeLink(link.index, { up: true });
  const addresses = await sandbox.rtnl.addresses(link.index);
  const foreign = addresses.find((address) => !isLoopback(address));
  if (foreign !== undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `set up "${name}" of network "${call.network}": it has the address "${foreign.address}", which is not a loopback address`,
    );
  }
  return call.prevResult ?? result(sandbox, addresses);
}

function result(sandbox: Sandbox, addresses: readonly Address[]): CniResult {
  const first = [addresses.find(isIpv4), addresses.find((address) => !isIpv4(address))];
  return {
    interfaces: [{ name, mac: "00:00:00:00:00:00", sandbox: sandbox.path }],
    ips: first
      .filter((address) => address !== undefined)
      .map(({ address }) => ({ address, interface: 0 })),
    routes: [],
    dns: {},
  };
}

async function del(call: PluginCall): Promise<void> {
  if (call.sandbox === undefined) return;
  const link = await call.sandbox.rtnl.getLink({ name });
  if (link?.up) await call.sandbox.rtnl.changeLink(link.index, { up: false });
}

async function check(call: PluginCall): Promise<void> {
  const link = await requireLoopback(requireSandbox(call));
  if (!link.up) throw drift(call, `interface "${name}" is down`);
}

async function requireLoopback(sandbox: Sandbox): Promise<Link> {
  const link = await sandbox.rtnl.getLink({ name });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.invalidNetns,
    `find "${name}" in "${sandbox.path}": no such interface`,
  );
}

function isIpv4({ address }: Address): boolean {
  return !address.includes(":");
}

function isLoopback({ address }: Address): boolean {
  const { family, value } = parseCidr(address);
  return family === 4 ? value >> 24n === 127n : value === 1n;
}
