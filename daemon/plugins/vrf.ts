import { z } from "zod";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Address, Link, Route } from "../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { decodeConfig, optional } from "./shared/config.ts";
import { asCniError } from "./shared/errors.ts";
import { drift } from "./shared/interface.ts";
import { requireSandbox } from "./shared/made-link.ts";
import { isInterfaceName } from "./shared/names.ts";
import { inTable, routeSpecOf } from "./shared/route.ts";

/**
 * Chained type `vrf`: the attachment's interface becomes part of a VRF (a routing domain with a table of its own) in the pod. The VRF is made with its first
 * interface and goes with its last. Without `table`, the first one that no VRF of the pod has.
 */
export const vrf: Plugin = { add, del, check };

const mainTable = 254;
const unicast = 1;
const kernelProtocol = 2;
const universe = 0;
const noDad = 0x02;
const permanent = 0x80;

const configField = z.object({
  vrfname: z.string({ error: "is missing: must name the VRF" }).refine(isInterfaceName, {
    error: (issue) =>
      `"${issue.input}" is not an interface name: must be 1 to 15 characters without spaces or slashes`,
  }),
  // 0 means a free one, as in the reference.
  table: optional(z.int().min(0).max(0xffffffff)),
});

function decodeVrf(call: PluginCall): {
  readonly vrfname: string;
  readonly table: number | undefined;
} {
  const { vrfname, table } = decodeConfig(configField, call.config, {
    network: call.network,
    plugin: "vrf",
  });
  return { vrfname, table: table === 0 ? undefined : table };
}

async function add(call: PluginCall): Promise<CniResult> {
  const config = decodeVrf(call);
  if (call.prevResult === undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `join VRF "${config.vrfname}" of network "${call.network}": vrf must follow a plugin that makes an interface ("prevResult" is missing)`,
    );
  }
  const { rtnl } = requireSandbox(call);
  let table: number;
  try {
    const link = await requireInterface(call, rtnl);
    const domain = await ensureVrf(call, rtnl, config);
    table = await join(rtnl, link, domain);
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `join VRF "${config.vrfname}" of network "${call.network}"`,
    );
  }
  return inTable(call.prevResult, () => table);
}

async function requireInterface(call: PluginCall, rtnl: Rtnetlink): Promise<Link> {
  const link = await rtnl.getLink({ name: call.ifName });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `join a VRF of network "${call.network}": the pod has no interface "${call.ifName}"`,
  );
}

/** The VRF of this name, made where it is missing. */
async function ensureVrf(
  call: PluginCall,
  rtnl: Rtnetlink,
  { vrfname, table }: ReturnType<typeof decodeVrf>,
): Promise<Link> {
  const existing = await rtnl.getLink({ name: vrfname });
  if (existing === undefined) {
    const chosen = table ?? freeTable(await rtnl.links());
    await rtnl.createLink({ name: vrfname, up: true, data: { kind: "vrf", table: chosen } });
    const made = await rtnl.getLink({ name: vrfname });
    if (made !== undefined) return made;
    throw new CniError(
      cniCode.tryAgainLater,
      `join VRF "${vrfname}" of network "${call.network}": it was deleted meanwhile`,
    );
  }
  const present = tableOf(existing);
  if (present === undefined)
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `join VRF "${vrfname}" of network "${call.network}": the pod has an interface of this name that is no VRF`,
    );
  if (table !== undefined && table !== present) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `join VRF "${vrfname}" of network "${call.network}": it exists with routing table ${present}, not ${table}`,
    );
  }
  return existing;
}

function tableOf(link: Link): number | undefined {
  return link.data?.kind === "vrf" ? link.data.table : undefined;
}

function freeTable(links: readonly Link[]): number {
  const used = new Set(links.map(tableOf));
  let table = 1;
  while (used.has(table)) table += 1;
  return table;
}

/** Gives the table of the VRF. Joining takes the interface down and up again, by which it loses its IPv6 addresses and all its routes: both are given back, the routes in the VRF's table. */
async function join(rtnl: Rtnetlink, link: Link, domain: Link): Promise<number> {
  const addresses = (await rtnl.addresses(link.index)).filter(isLostOnJoin);
  const routes = (await rtnl.routes({ table: mainTable, index: link.index })).filter(isLost);
  await rtnl.changeLink(link.index, { master: domain.index });
  const present = new Set((await rtnl.addresses(link.index)).map(({ address }) => address));
  for (const { address, flags } of addresses) {
    // Its uniqueness was found out before; the routes below need it at once.
    if (!present.has(address))
      await rtnl.addAddress({ index: link.index, address, flags: (flags & ~permanent) | noDad });
  }
  const table = tableOf(domain) ?? mainTable;
  for (const route of routes) await rtnl.addRoute({ ...routeSpecOf(route), table }, "replace");
  return table;
}

function isLostOnJoin({ address, scope, flags }: Address): boolean {
  return address.includes(":") && scope === universe && (flags & permanent) !== 0;
}

/** The kernel itself makes the routes of the interface's own subnets anew. */
function isLost({ type, protocol }: Route): boolean {
  return type === unicast && protocol !== kernelProtocol;
}

/** Idempotent; a VRF that other interfaces are in stays. */
async function del(call: PluginCall): Promise<void> {
  if (call.sandbox === undefined) return;
  const { rtnl } = call.sandbox;
  const name = call.config["vrfname"];
  const domain =
    typeof name === "string" && isInterfaceName(name) ? await rtnl.getLink({ name }) : undefined;
  if (domain === undefined || tableOf(domain) === undefined) return;
  const link = await rtnl.getLink({ name: call.ifName });
  if (link?.master === domain.index) await rtnl.changeLink(link.index, { master: 0 });
  const isEmpty = (await rtnl.links()).every(({ master }) => master !== domain.index);
  if (isEmpty) await rtnl.deleteLink({ index: domain.index });
}

async function check(call: PluginCall): Promise<void> {
  const { vrfname, table } = decodeVrf(call);
  const { rtnl } = requireSandbox(call);
  const domain = await rtnl.getLink({ name: vrfname });
  const present = domain === undefined ? undefined : tableOf(domain);
  if (domain === undefined || present === undefined) throw drift(call, `VRF "${vrfname}" is gone`);
  if (table !== undefined && table !== present)
    throw drift(call, `VRF "${vrfname}" has routing table ${present} instead of ${table}`);
  if (!domain.up) throw drift(call, `VRF "${vrfname}" is down`);
  const link = await rtnl.getLink({ name: call.ifName });
  if (link?.master !== domain.index)
    throw drift(call, `interface "${call.ifName}" is not in VRF "${vrfname}"`);
}
