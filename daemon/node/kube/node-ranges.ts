import { defaultNetworkName } from "../../../lib/api/names.ts";
import type { PodNetwork } from "../../../lib/api/objects.ts";
import { isJsonObject, type Json, type JsonObject } from "../../../lib/base/json.ts";
import { type Conflist, decodeConflist } from "../../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { NetworkSource } from "../networks.ts";

/** The address management that can take a node's own ranges. */
const ownIpam = "host-local";

/**
 * A network's configuration with the node's own address ranges in it, for each family of which its PodNetwork says `kubernetes`
 * (spec A.8); as it was where it says nothing of the kind. Rejects with code 101 (not possible here), 7 (the configuration has
 * addresses of that family of its own, or another address management) or 11 (the API server can't be asked).
 */
export async function withNodeRanges(
  source: NetworkSource,
  network: PodNetwork,
  conflist: Conflist,
): Promise<Conflist> {
  const fields = (["ipam4", "ipam6"] as const).filter(
    (field) => network.spec[field] === "kubernetes",
  );
  const [field] = fields;
  if (field === undefined) return conflist;
  const { name } = network.metadata;
  const where = `PodNetwork "${name}": spec.${field}: "kubernetes"`;
  if (name !== defaultNetworkName) {
    // Two networks that give out one range would give out its addresses twice.
    throw notReady(`${where} is for the PodNetwork "${defaultNetworkName}" only: use "external"`);
  }
  if (source.podCidrs === undefined) {
    throw notReady(`${where} takes the node's podCIDRs, which only a cluster has: set kubeconfig`);
  }
  const cidrs = await source.podCidrs();
  const ranges = fields.map((one) => rangeOf(one, cidrs, name));
  return withRanges(conflist, { ranges, fields, name });
}

function rangeOf(field: "ipam4" | "ipam6", cidrs: readonly string[], name: string): string {
  const isV6 = field === "ipam6";
  const found = cidrs.find((cidr) => cidr.includes(":") === isV6);
  if (found !== undefined) return found;
  const family = isV6 ? "IPv6" : "IPv4";
  const all = cidrs.length === 0 ? "none" : cidrs.join(", ");
  throw notReady(
    `PodNetwork "${name}": spec.${field}: the node has no ${family} podCIDR (it has ${all})`,
  );
}

interface Wanted {
  readonly name: string;
  readonly ranges: readonly string[];
  readonly fields: readonly string[];
}

/** The ranges go into the first plugin, which is the one that addresses are asked for by. */
function withRanges(conflist: Conflist, wanted: Wanted): Conflist {
  const [first, ...rest] = conflist.plugins;
  if (first === undefined) return conflist;
  const ipam: JsonObject = isJsonObject(first.ipam) ? first.ipam : {};
  const { type } = ipam;
  const where = `PodNetwork "${wanted.name}": spec.${wanted.fields.join(" and spec.")}: "kubernetes"`;
  if (type !== undefined && type !== "" && type !== ownIpam) {
    throw wrong(`${where} needs ipam of type "${ownIpam}", not ${JSON.stringify(type)}`);
  }
  const own = ownSubnets(ipam);
  const doubled = own.find((cidr) =>
    wanted.ranges.some((range) => range.includes(":") === cidr.includes(":")),
  );
  if (doubled !== undefined) {
    throw wrong(`${where}, and ipam has the range ${JSON.stringify(doubled)} too: remove one`);
  }
  const { ranges } = ipam;
  const given: readonly Json[] = Array.isArray(ranges) ? ranges : [];
  const added = wanted.ranges.map((subnet) => [{ subnet }]);
  const plugin = { ...first, ipam: { ...ipam, type: ownIpam, ranges: [...given, ...added] } };
  const list: JsonObject = JSON.parse(conflist.text);
  return decodeConflist(JSON.stringify({ ...whole(list, conflist), plugins: [plugin, ...rest] }));
}

/** Keys of the list itself; a single plugin's own are not the list's. */
function whole(list: JsonObject, { name, cniVersion }: Conflist): JsonObject {
  return list["plugins"] === undefined ? { name, cniVersion } : list;
}

function ownSubnets(ipam: JsonObject): string[] {
  const { ranges, subnet } = ipam;
  const sets = Array.isArray(ranges) ? (ranges as readonly Json[]).flat() : [];
  const subnets = sets.map((range) => (isJsonObject(range) ? range["subnet"] : undefined));
  return [subnet, ...subnets].filter((one) => typeof one === "string");
}

function notReady(message: string): CniError {
  return new CniError(cniCode.podNetworkNotReady, message);
}

function wrong(message: string): CniError {
  return new CniError(cniCode.invalidNetworkConfig, message);
}
