import type { z } from "zod";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import { type CniInterface, type CniResult, emptyResult } from "../../../lib/cni/types.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { Plugin, PluginCall, Sandbox } from "../plugin.ts";
import { announce } from "./announce.ts";
import { decodeConfig, dnsField, optional } from "./config.ts";
import { asCniError } from "./errors.ts";
import { checkInterface, configureInterface, drift } from "./interface.ts";
import { deleteMadeLink, requireFreeName, requireLink, requireSandbox } from "./made-link.ts";

/** A type whose attachment is one link that the plugin makes in the sandbox, with addresses from IPAM. */
export interface MadeType<C> {
  readonly type: string;
  readonly schema: z.ZodType<C>;
  /** "optional": without IPAM the interface is brought up and has no addresses. */
  readonly ipam: "required" | "optional";
  /** Whose `dns` the result has: the configuration's (also when that says nothing) or IPAM's, as the reference does for the type. */
  readonly dns: "configuration" | "ipam";
  /** Lets the kernel announce addresses whenever the interface comes up or changes its hardware address. */
  readonly notify: { readonly arp: boolean; readonly ndisc: boolean };
  /** Looks up and checks everything, then makes the link under the name `call.ifName`, which is free. */
  make(call: PluginCall, config: C): Promise<Link>;
  /** Addresses from another place than IPAM. */
  inherited?(call: PluginCall): CniResult | undefined;
  /** What is not as the configuration says; undefined when all is well. */
  drift(call: PluginCall, config: C, link: Link): Promise<string | undefined>;
}

/** The plugin of such a type. */
export function madeLinkPlugin<C>(type: MadeType<C>): Plugin {
  return {
    add: (call) => add(type, call),
    del: (call) => del(type, call),
    check: (call) => check(type, call),
  };
}

async function add<C>(type: MadeType<C>, call: PluginCall): Promise<CniResult> {
  const config = decodeType(type, call);
  const sandbox = requireSandbox(call);
  if (type.ipam === "required" && type.inherited?.(call) === undefined)
    requireIpam(type.type, call);
  await requireFreeName(call, sandbox);
  const link = await makeOrExplain(type, call, config);
  const addresses = type.inherited?.(call) ?? (await ipamResult(call));
  const result = resultOf(type, call, { link, addresses });
  await configureInterface(call, sandbox, {
    link,
    // As in the reference: there is nothing to announce without addresses.
    setup: { result, index: 0, ...(result.ips.length > 0 && { notify: type.notify }) },
  });
  if (!type.notify.arp) announce(sandbox, link, result.ips);
  return result;
}

async function makeOrExplain<C>(type: MadeType<C>, call: PluginCall, config: C): Promise<Link> {
  try {
    return await type.make(call, config);
  } catch (error) {
    const action = `make ${type.type} interface "${call.ifName}" of network "${call.network}"`;
    throw asCniError(error, cniCode.internal, action);
  }
}

function decodeType<C>(type: MadeType<C>, call: PluginCall): C {
  return decodeConfig(type.schema, call.config, { network: call.network, plugin: type.type });
}

/** Throws code 7 when the configuration has no IPAM plugin. */
export function requireIpam(type: string, call: PluginCall): void {
  if (call.ipam !== undefined) return;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": ${type} needs addresses: set "ipam"`,
  );
}

/** What IPAM gives; nothing without an IPAM plugin. Throws code 108 when it gives no address. */
export async function ipamResult(call: PluginCall): Promise<CniResult> {
  if (call.ipam === undefined) return emptyResult;
  const result = await call.ipam.add();
  if (result.ips.length > 0) return result;
  throw new CniError(
    cniCode.addressUnavailable,
    `network "${call.network}": ipam "${call.config.ipam?.type}" gave no address`,
  );
}

function resultOf<C>(
  type: MadeType<C>,
  call: PluginCall,
  parts: { readonly link: Link; readonly addresses: CniResult },
): CniResult {
  const { link, addresses } = parts;
  return {
    interfaces: [interfaceOf(requireSandbox(call), link)],
    ips: addresses.ips.map((ip) => ({ ...ip, interface: 0 })),
    routes: addresses.routes,
    dns: type.dns === "ipam" ? addresses.dns : configuredDns(call),
  };
}

/** An interface in the sandbox as results show it. */
export function interfaceOf(sandbox: Sandbox, link: Link): CniInterface {
  return {
    name: link.name,
    ...(link.mac === undefined ? {} : { mac: link.mac }),
    mtu: link.mtu,
    sandbox: sandbox.path,
  };
}

/** `dns` of the configuration; empty when there is none. */
export function configuredDns(call: PluginCall): CniResult["dns"] {
  const where = { network: call.network, plugin: call.config.type };
  return decodeConfig(optional(dnsField), call.config["dns"], where) ?? {};
}

/** Gives back the addresses first, while DHCP can still say goodbye over the link; the link goes in any case. */
async function del<C>(type: MadeType<C>, call: PluginCall): Promise<void> {
  const outcomes = await Promise.allSettled([
    call.ipam?.del().finally(() => deleteMadeLink(call)) ?? deleteMadeLink(call),
  ]);
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed === undefined) return;
  const action = `delete ${type.type} interface "${call.ifName}" of network "${call.network}"`;
  throw asCniError(failed.reason, cniCode.tryAgainLater, action);
}

async function check<C>(type: MadeType<C>, call: PluginCall): Promise<void> {
  const config = decodeType(type, call);
  const sandbox = requireSandbox(call);
  const { link, result } = await requireOwnInterface(call, sandbox);
  await call.ipam?.check();
  const difference = await type.drift(call, config, link);
  if (difference !== undefined) throw drift(call, `interface "${link.name}": ${difference}`);
  await checkInterface(call, sandbox, { link, result });
}

/** The attachment's interface, as the kernel has it now and as the result says: name, hardware address, MTU and state must agree. */
export async function requireOwnInterface(
  call: PluginCall,
  sandbox: Sandbox,
): Promise<{ readonly link: Link; readonly result: CniResult }> {
  const result = call.prevResult;
  const own = result?.interfaces.find(
    (one) => one.name === call.ifName && one.sandbox === sandbox.path,
  );
  if (result === undefined || own === undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `network "${call.network}": prevResult has no interface "${call.ifName}" in "${sandbox.path}"`,
    );
  }
  const link = await sandbox.rtnl.getLink({ name: call.ifName });
  const difference = link === undefined ? "it is gone" : differenceOf(own, link);
  if (link === undefined || difference !== undefined) {
    throw drift(call, `interface "${call.ifName}": ${difference}`);
  }
  return { link, result };
}

function differenceOf(own: CniInterface, link: Link): string | undefined {
  if (own.mac !== undefined && own.mac !== "" && own.mac.toLowerCase() !== link.mac) {
    return `its hardware address is ${link.mac}, not ${own.mac}`;
  }
  if (own.mtu !== undefined && own.mtu !== 0 && own.mtu !== link.mtu) {
    return `its MTU is ${link.mtu}, not ${own.mtu}`;
  }
  return link.up ? undefined : "it is down";
}

/** The link again, as it is after its configuration. */
export function refetch(sandbox: Sandbox, link: Link): Promise<Link> {
  return requireLink(sandbox.rtnl, link);
}
