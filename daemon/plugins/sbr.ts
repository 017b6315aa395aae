import { z } from "zod";
import {
  bitsOf,
  type Cidr,
  canonicalIp,
  contains,
  formatCidr,
  formatIp,
  networkOf,
  parseCidr,
  parseIp,
} from "../../lib/base/ip.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniIp, CniResult, CniRoute } from "../../lib/cni/types.ts";
import type { Route, RouteSpec, Rule, RuleSpec } from "../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { decodeConfig, optional } from "./shared/config.ts";
import { asCniError } from "./shared/errors.ts";
import { drift } from "./shared/interface.ts";
import { requireSandbox } from "./shared/made-link.ts";
import { inTable, routeSpecOf } from "./shared/route.ts";

/**
 * Chained type `sbr` (source based routing): what the pod sends from an address of this attachment leaves by this attachment. As the reference does it: each address
 * gets a rule, and a routing table of its own to which the interface's routes move; with `table`, rules only, and the table is the admin's.
 */
export const sbr: Plugin = { add, del, check };

const mainTable = 254;
const unicast = 1;
/** The first table that is tried for an address. */
const firstTable = 100;

const configField = z.object({ table: optional(z.int().min(1).max(0xffffffff)) });
const stateField = z.object({ rules: z.array(z.object({ source: z.string(), table: z.int() })) });

interface SourceRule {
  /** The address with its full prefix length. */
  readonly source: string;
  readonly table: number;
}

async function add(call: PluginCall): Promise<CniResult> {
  const { table } = decodeSbr(call);
  const result = requirePrevResult(call);
  const { rtnl } = requireSandbox(call);
  const ips = ownIps(call, result);
  const free = table === undefined ? freeTables(await rtnl.rules()) : undefined;
  const rules = ips.map(
    (ip): SourceRule => ({
      source: sourceOf(ip),
      table: table ?? free?.next().value ?? firstTable,
    }),
  );
  await call.state.save({ rules: rules.map((rule) => ({ ...rule })) });
  let moved: readonly RouteSpec[] = [];
  try {
    for (const rule of rules) await rtnl.addRule(ruleSpec(rule));
    if (table === undefined) moved = await moveRoutes(call, rtnl, { ips, rules });
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `route by source address for interface "${call.ifName}" of network "${call.network}"`,
    );
  }
  return inTable(result, (route) => moved.find((one) => isSame(one, route))?.table);
}

function isSame(moved: RouteSpec, { dst, gw }: CniRoute): boolean {
  const isThere = gw === undefined || canonicalIp(gw) === moved.gateway;
  return isThere && moved.destination === formatCidr(networkOf(parseCidr(dst)));
}

function decodeSbr(call: PluginCall): z.output<typeof configField> {
  return decodeConfig(configField, call.config, { network: call.network, plugin: "sbr" });
}

function requirePrevResult(call: PluginCall): CniResult {
  if (call.prevResult !== undefined) return call.prevResult;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `route by source address for network "${call.network}": sbr must follow a plugin that makes an interface ("prevResult" is missing)`,
  );
}

/** The addresses of the attachment's interface in the sandbox. */
function ownIps(call: PluginCall, result: CniResult): CniIp[] {
  const index = result.interfaces.findIndex(
    ({ name, sandbox }) => name === call.ifName && sandbox !== undefined && sandbox !== "",
  );
  const ips = result.ips.filter((ip) => ip.interface === index);
  if (index >= 0 && ips.length > 0) return ips;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `route by source address for network "${call.network}": interface "${call.ifName}" has no address in the result so far`,
  );
}

function sourceOf(ip: CniIp): string {
  const cidr = parseCidr(ip.address);
  return `${formatIp(cidr)}/${bitsOf(cidr.family)}`;
}

/** Numbers of tables that no rule leads to, from 100 on. */
function* freeTables(rules: readonly Rule[]): Generator<number, never> {
  const used = new Set(rules.map(({ table }) => table));
  for (let table = firstTable; ; table += 1) if (!used.has(table)) yield table;
}

function ruleSpec({ source, table }: SourceRule): RuleSpec {
  return { family: parseCidr(source).family, source, table };
}

/** Copies the interface's routes to the tables of the addresses that they fit, then removes them from the main table. Gives the copies. */
async function moveRoutes(
  call: PluginCall,
  rtnl: Rtnetlink,
  { ips, rules }: { readonly ips: readonly CniIp[]; readonly rules: readonly SourceRule[] },
): Promise<readonly RouteSpec[]> {
  const link = await rtnl.getLink({ name: call.ifName });
  if (link === undefined)
    throw new CniError(
      cniCode.tryAgainLater,
      `find interface "${call.ifName}" of network "${call.network}": it is gone`,
    );
  const routes = (await rtnl.routes({ table: mainTable, index: link.index })).filter(
    ({ type }) => type === unicast,
  );
  const moved: RouteSpec[] = [];
  for (const [number, ip] of ips.entries()) {
    const table = rules[number]?.table ?? firstTable;
    const cidr = parseCidr(ip.address);
    if (ip.gateway !== undefined)
      await rtnl.addRoute(defaultRoute(ip.gateway, link.index, table), "replace");
    for (const route of routes) {
      if (!fits(route, cidr)) continue;
      const spec = { ...routeSpecOf(route), table };
      await rtnl.addRoute(spec, "replace");
      moved.push(spec);
    }
  }
  for (const route of routes) await rtnl.deleteRoute(routeSpecOf(route));
  return moved;
}

function defaultRoute(gateway: string, index: number, table: number): RouteSpec {
  return {
    destination: parseIp(gateway).family === 4 ? "0.0.0.0/0" : "::/0",
    gateway,
    index,
    table,
  };
}

/** A route with a gateway or source goes to the table of the address whose subnet that is in; one with neither, to every table. */
function fits(route: Route, cidr: Cidr): boolean {
  const points = [route.source, route.gateway].filter((text) => text !== undefined);
  return points.length === 0 || points.some((text) => contains(cidr, parseIp(text)));
}

/** The routes end with the interface. */
async function del(call: PluginCall): Promise<void> {
  const state = call.state.load();
  if (state === undefined || call.sandbox === undefined) return;
  const { rules } = decodeConfig(stateField, state, { network: call.network, plugin: "saved sbr" });
  for (const rule of rules) await call.sandbox.rtnl.deleteRule(ruleSpec(rule));
}

async function check(call: PluginCall): Promise<void> {
  const { table } = decodeSbr(call);
  const { rtnl } = requireSandbox(call);
  const rules = await rtnl.rules();
  for (const ip of ownIps(call, requirePrevResult(call))) {
    const source = sourceOf(ip);
    const rule = rules.find(
      (one) =>
        one.source === source &&
        (table === undefined ? one.table >= firstTable : one.table === table),
    );
    if (rule === undefined) throw drift(call, `the rule for what comes from ${source} is missing`);
    if (table === undefined) await checkTable(call, rtnl, { ip, table: rule.table });
  }
}

/** The table of an address has its default route and the route to its subnet, which were moved there. */
async function checkTable(
  call: PluginCall,
  rtnl: Rtnetlink,
  { ip, table }: { readonly ip: CniIp; readonly table: number },
): Promise<void> {
  const routes = await rtnl.routes({ table });
  const cidr = parseCidr(ip.address);
  const subnet = formatCidr(networkOf(cidr));
  if (ip.gateway !== undefined) {
    const wanted = defaultRoute(ip.gateway, 0, table);
    const isThere = routes.some(
      ({ destination, gateway }) =>
        destination === wanted.destination && gateway === wanted.gateway,
    );
    if (!isThere) throw drift(call, `table ${table} lacks the default route via ${ip.gateway}`);
  }
  const hasSubnet = cidr.prefixLength < bitsOf(cidr.family);
  if (hasSubnet && !routes.some(({ destination }) => destination === subnet)) {
    throw drift(call, `table ${table} lacks the route to ${subnet}`);
  }
}
