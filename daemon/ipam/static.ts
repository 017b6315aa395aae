import { z } from "zod";
import {
  type Cidr,
  canonicalIp,
  contains,
  formatCidr,
  formatIp,
  type Ip,
  isCidr,
  isIp,
  parseCidr,
  parseIp,
} from "../../lib/base/ip.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniIp, CniResult } from "../../lib/cni/types.ts";
import {
  cidrField,
  decodeConfig,
  dnsField,
  optional,
  optionalIpField,
  routeField,
} from "../plugins/shared/config.ts";
import type { IpamCall, IpamPlugin } from "./ipam.ts";

/** The addresses that the configuration, CNI_ARGS or the runtime name. Nothing is reserved: whoever names them keeps them apart. */
export function createStatic(): IpamPlugin {
  return {
    add: async (call) => add(call),
    del: () => Promise.resolve(),
    check: async (call) => check(call),
  };
}

const ips = optional(z.array(cidrField));
const schema = z.object({
  ipam: z.object({
    addresses: optional(z.array(z.object({ address: cidrField, gateway: optionalIpField }))),
    routes: optional(z.array(routeField)),
    dns: optional(dnsField),
  }),
  args: optional(z.object({ cni: optional(z.object({ ips })) })),
});
const runtimeSchema = z.object({ ips });

type StaticConfig = z.output<typeof schema> & { readonly runtimeIps: readonly Cidr[] };

interface StaticAddress {
  readonly address: Cidr;
  readonly gateway: Ip | undefined;
}

function readConfig(call: IpamCall): StaticConfig {
  const where = { network: call.network, plugin: "static" };
  const config = decodeConfig(schema, call.config, where);
  const runtime = decodeConfig(runtimeSchema, call.runtimeConfig, {
    ...where,
    plugin: "static runtimeConfig in the",
  });
  return { ...config, runtimeIps: runtime.ips ?? [] };
}

function add(call: IpamCall): CniResult {
  const config = readConfig(call);
  const addresses = chooseAddresses(call, config);
  refuseManyForOldVersion(call, addresses);
  const result = addresses.map(
    ({ address, gateway }): CniIp => ({
      address: formatCidr(address),
      ...(gateway !== undefined && { gateway: formatIp(gateway) }),
    }),
  );
  const { routes, dns } = config.ipam;
  return { interfaces: [], ips: result, routes: routes ?? [], dns: dns ?? {} };
}

/** runtimeConfig `ips` replaces everything, `args.cni.ips` all but that; CNI_ARGS adds to what the configuration names, with
 * gateways of its own. */
function chooseAddresses(call: IpamCall, config: StaticConfig): readonly StaticAddress[] {
  const bare = (address: Cidr): StaticAddress => ({ address, gateway: undefined });
  const environment = environmentList(call, "IP", isCidr).map(parseCidr);
  const gateways = environmentList(call, "GATEWAY", isIp).map(parseIp);
  const asked = config.args?.cni?.ips ?? [];
  if (config.runtimeIps.length > 0) return config.runtimeIps.map(bare);
  if (asked.length > 0) return asked.map(bare);
  const added = environment.map((address) => ({
    address,
    gateway: gateways.findLast((candidate) => contains(address, candidate)),
  }));
  return [...configured(config), ...added];
}

function configured(config: StaticConfig): readonly StaticAddress[] {
  return (config.ipam.addresses ?? []).map(({ address, gateway }) => ({ address, gateway }));
}

function environmentList(
  call: IpamCall,
  key: string,
  accepts: (text: string) => boolean,
): readonly string[] {
  const text = call.cniArgs.get(key) ?? "";
  if (text === "") return [];
  const items = text.split(",").map((item) => item.trim());
  const wrong = items.find((item) => !accepts(item));
  if (wrong === undefined) return items;
  const form = key === "IP" ? "an address with prefix length" : "an IP address";
  throw new CniError(
    cniCode.invalidEnvironment,
    `CNI_ARGS of network "${call.network}": ${key}: "${wrong}" is not ${form}`,
  );
}

/** Results before version 0.3.0 have one address a family (CNI specification 0.2.0). */
function refuseManyForOldVersion(call: IpamCall, addresses: readonly StaticAddress[]): void {
  const version = call.config["cniVersion"];
  if (version !== "0.1.0" && version !== "0.2.0") return;
  const v4 = addresses.filter(({ address }) => address.family === 4).length;
  if (v4 <= 1 && addresses.length - v4 <= 1) return;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `static configuration of network "${call.network}": ipam.addresses: cniVersion "${version}" has room for one address a family only`,
  );
}

/** Compares the configuration's gateways with the result's. That the interface has the addresses is the interface plugin's check. */
function check(call: IpamCall): void {
  const config = readConfig(call);
  if (call.prevResult === undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `check static of network "${call.network}": prevResult is missing`,
    );
  }
  for (const { address, gateway } of configured(config)) {
    if (gateway === undefined) continue;
    const ip = formatIp(address);
    const found = call.prevResult.ips.filter((entry) => formatIp(parseCidr(entry.address)) === ip);
    if (found.length === 0 || found.some((entry) => sameIp(entry.gateway, gateway))) continue;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `check static of network "${call.network}": the result's gateway of "${ip}" is not "${formatIp(gateway)}"`,
    );
  }
}

function sameIp(text: string | undefined, ip: Ip): boolean {
  return text !== undefined && canonicalIp(text) === formatIp(ip);
}
