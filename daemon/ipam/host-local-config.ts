import { z } from "zod";
import {
  buildRangeSet,
  type RangeSet,
  type RangeSpec,
  setsOverlap,
} from "../../lib/api/ip-ranges.ts";
import { formatIp, type Ip, IpError } from "../../lib/base/ip.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniRoute } from "../../lib/cni/types.ts";
import type { NetworkCall } from "../plugins/plugin.ts";
import {
  cidrField,
  decodeConfig,
  optional,
  optionalIpField,
  requestedIpField,
  routeField,
} from "../plugins/shared/config.ts";
import type { IpamCall } from "./ipam.ts";

/** What host-local needs to allocate. */
export interface HostLocalConfig {
  /** One address of each is allocated. Never empty. */
  readonly sets: readonly RangeSet[];
  readonly routes: readonly CniRoute[];
  readonly resolvConf: string | undefined;
  /** Addresses asked for, without repeats, in the order of their sources: CNI_ARGS, `args.cni.ips`, runtimeConfig. */
  readonly requested: readonly Ip[];
}

const range = z
  .object({
    subnet: cidrField,
    rangeStart: optionalIpField,
    rangeEnd: optionalIpField,
    gateway: optionalIpField,
  })
  .partial({ rangeStart: true, rangeEnd: true, gateway: true });
const ranges = optional(z.array(z.array(range)));
const ips = optional(z.array(requestedIpField));

const schema = z.object({
  ipam: z.object({
    ...range.partial({ subnet: true }).shape,
    ranges,
    routes: optional(z.array(routeField)),
    dataDir: optional(z.string()),
    resolvConf: optional(z.string()),
  }),
  args: optional(z.object({ cni: optional(z.object({ ips })) })),
});
const runtimeSchema = z.object({ ips, ipRanges: ranges });
const environmentSchema = z.object({
  IP: optional(z.union([z.literal("").transform(() => undefined), requestedIpField])),
});

/** Decodes what an ADD needs. Throws a CniError (code 7, 4 for CNI_ARGS) that names network and field. */
export function readHostLocalConfig(call: IpamCall): HostLocalConfig {
  const where = { network: call.network, plugin: "host-local" };
  const { ipam, args } = decodeConfig(schema, call.config, where);
  const runtime = decodeConfig(runtimeSchema, call.runtimeConfig, {
    ...where,
    plugin: "host-local runtimeConfig in the",
  });
  const inline = ipam.subnet === undefined ? [] : [[{ ...ipam, subnet: ipam.subnet }]];
  return {
    sets: buildSets(call, [...(runtime.ipRanges ?? []), ...inline, ...(ipam.ranges ?? [])]),
    routes: ipam.routes ?? [],
    resolvConf: ipam.resolvConf === "" ? undefined : ipam.resolvConf,
    requested: distinct([
      ...environmentIps(call),
      ...(args?.cni?.ips ?? []),
      ...(runtime.ips ?? []),
    ]),
  };
}

function environmentIps(call: IpamCall): readonly Ip[] {
  const outcome = environmentSchema.safeParse({ IP: call.cniArgs.get("IP") });
  if (outcome.success) return outcome.data.IP === undefined ? [] : [outcome.data.IP];
  throw new CniError(
    cniCode.invalidEnvironment,
    `CNI_ARGS of network "${call.network}": IP="${call.cniArgs.get("IP")}" is not an IP address`,
  );
}

type RangeInput = { readonly subnet: RangeSpec["subnet"] } & {
  readonly [K in "rangeStart" | "rangeEnd" | "gateway"]?: Ip | undefined;
};

function buildSets(call: NetworkCall, inputs: readonly RangeInput[][]): readonly RangeSet[] {
  if (inputs.length === 0) throw invalid(call, "ipam.ranges", "no IP range is given");
  const sets = inputs.map((input, index) => {
    try {
      return buildRangeSet(
        input.map(({ subnet, rangeStart, rangeEnd, gateway }) => ({
          subnet,
          rangeStart,
          rangeEnd,
          gateway,
        })),
      );
    } catch (error) {
      if (!(error instanceof IpError)) throw error;
      throw invalid(call, `range set ${index}`, error.message);
    }
  });
  for (const [index, set] of sets.entries()) {
    const other = sets.findIndex((earlier, at) => at < index && setsOverlap(earlier, set));
    if (other >= 0) throw invalid(call, `range set ${index}`, `overlaps range set ${other}`);
  }
  refuseManyForOldVersion(call, sets);
  return sets;
}

/** Results before version 0.3.0 have one address a family (CNI specification 0.2.0). */
function refuseManyForOldVersion(call: NetworkCall, sets: readonly RangeSet[]): void {
  const version = call.config["cniVersion"];
  if (version !== "0.1.0" && version !== "0.2.0") return;
  const v4 = sets.filter((set) => set[0].subnet.family === 4).length;
  if (v4 > 1 || sets.length - v4 > 1) {
    throw invalid(
      call,
      "ipam.ranges",
      `cniVersion "${version}" has room for one address a family only`,
    );
  }
}

function invalid(call: NetworkCall, field: string, reason: string): CniError {
  return new CniError(
    cniCode.invalidNetworkConfig,
    `host-local configuration of network "${call.network}": ${field}: ${reason}`,
  );
}

function distinct(addresses: readonly Ip[]): readonly Ip[] {
  return [...new Map(addresses.map((ip) => [formatIp(ip), ip])).values()];
}
