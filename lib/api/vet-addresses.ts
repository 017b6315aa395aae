import type { Fault } from "../base/decode.ts";
import {
  type Cidr,
  formatCidr,
  type Ip,
  IpError,
  isCidr,
  isIp,
  overlaps,
  parseCidr,
  parseIp,
} from "../base/ip.ts";
import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import { buildRangeSet, type RangeSet, type RangeSpec, setsOverlap } from "./ip-ranges.ts";
import { quote } from "./names.ts";

/** The addresses that a network gives out, as far as its configuration says. */
export interface Addresses {
  readonly faults: readonly Fault[];
  readonly warnings: readonly Fault[];
  /** Families of the addresses; undefined: something decides that is not known here. */
  readonly families: ReadonlySet<4 | 6> | undefined;
}

interface Placed<T> {
  readonly value: T;
  readonly path: string;
}

/** Sets of ranges that are compared with each other. */
const mostCompared = 256;

type Report = (path: string, message: string) => void;

/** Looks at the address management (`ipam`) of every plugin of a network together. `at`: path of a plugin by its place. */
export function vetAddresses(
  plugins: readonly JsonObject[],
  at: (index: number) => string,
): Addresses {
  const faults: Fault[] = [];
  const warnings: Fault[] = [];
  const report: Report = (path, message) => faults.push({ path, message });
  const found = plugins.map((plugin, index) => ofPlugin(plugin, `${at(index)}.ipam`, report));
  const sets = found.flatMap((one) => one.sets);
  compareSets(sets, report, (path, message) => warnings.push({ path, message }));
  const families = new Set(found.flatMap((one) => one.families));
  const isKnown = found.every((one) => one.isKnown);
  return { faults, warnings, families: isKnown ? families : undefined };
}

interface Found {
  readonly sets: readonly Placed<RangeSet>[];
  readonly families: readonly (4 | 6)[];
  /** Nothing else decides about its addresses. */
  readonly isKnown: boolean;
}

function ofPlugin({ ipam, capabilities }: JsonObject, path: string, report: Report): Found {
  if (!isJsonObject(ipam)) return { sets: [], families: [], isKnown: true };
  checkRoutes(ipam["routes"], `${path}.routes`, report);
  // What pods ask for comes on top.
  const isKnown = !declares(capabilities, "ips") && !declares(capabilities, "ipRanges");
  if (ipam["type"] === "host-local") {
    const sets = rangeSets(ipam, path, report);
    return { sets, families: sets.map(({ value }) => value[0].subnet.family), isKnown };
  }
  if (ipam["type"] === "static") {
    const addresses = staticAddresses(ipam, path, report);
    return { sets: [], families: addresses.map(({ family }) => family), isKnown };
  }
  const { type = "" } = ipam;
  return { sets: [], families: [], isKnown: isKnown && type === "" };
}

/** Whether a plugin declares the capability. */
export function declares(capabilities: Json | undefined, name: string): boolean {
  return isJsonObject(capabilities) && capabilities[name] === true;
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : [];
}

function rangeSets(ipam: JsonObject, path: string, report: Report): Placed<RangeSet>[] {
  const inline = ipam["subnet"] === undefined ? [] : [{ set: [ipam] as readonly Json[], at: path }];
  const listed = listOf(ipam["ranges"]).map((set, index) => {
    const at = `${path}.ranges[${index}]`;
    if (!Array.isArray(set)) report(at, "must be a list of ranges");
    return { set: listOf(set), at };
  });
  return [...inline, ...listed].flatMap(({ set, at }) => {
    const single = at === path;
    const specs = set.map((range, index) =>
      rangeSpec(range, single ? at : `${at}[${index}]`, report),
    );
    if (specs.some((spec) => spec === undefined)) return [];
    const found = specs.filter((spec) => spec !== undefined);
    return buildSet(found, at, report);
  });
}

function buildSet(specs: readonly RangeSpec[], path: string, report: Report): Placed<RangeSet>[] {
  try {
    return [{ value: buildRangeSet(specs), path }];
  } catch (error) {
    if (!(error instanceof IpError)) throw error;
    report(path, error.message);
    return [];
  }
}

function rangeSpec(range: Json, path: string, report: Report): RangeSpec | undefined {
  if (!isJsonObject(range)) {
    report(path, 'must be an object, as in {"subnet": "10.1.0.0/24"}');
    return undefined;
  }
  let sound = true;
  const ip = (key: string): Ip | undefined => {
    const value = range[key];
    if (value === undefined || value === null || value === "") return undefined;
    if (typeof value === "string" && isIp(value)) return parseIp(value);
    sound = false;
    report(`${path}.${key}`, `${shown(value)} must be an IP address`);
    return undefined;
  };
  const spec = { rangeStart: ip("rangeStart"), rangeEnd: ip("rangeEnd"), gateway: ip("gateway") };
  const subnet = cidr(range["subnet"], `${path}.subnet`, report);
  return subnet === undefined || !sound ? undefined : { subnet, ...spec };
}

function cidr(value: Json | undefined, path: string, report: Report): Cidr | undefined {
  if (typeof value === "string" && isCidr(value)) return parseCidr(value);
  const rule = 'must be an address with prefix length, as in "10.1.0.0/24"';
  report(path, value === undefined ? `missing: ${rule}` : `${shown(value)} ${rule}`);
  return undefined;
}

function staticAddresses(ipam: JsonObject, path: string, report: Report): Ip[] {
  return listOf(ipam["addresses"]).flatMap((entry, index) => {
    const at = `${path}.addresses[${index}]`;
    if (!isJsonObject(entry)) {
      report(at, "must be an object with an address");
      return [];
    }
    const address = cidr(entry["address"], `${at}.address`, report);
    checkGateway(entry["gateway"], address, { path: `${at}.gateway`, report });
    return address === undefined ? [] : [address];
  });
}

function checkGateway(
  gateway: Json | undefined,
  address: Cidr | undefined,
  { path, report }: { readonly path: string; readonly report: Report },
): void {
  if (gateway === undefined || gateway === null || gateway === "") return;
  if (typeof gateway !== "string" || !isIp(gateway)) {
    report(path, `${shown(gateway)} must be an IP address`);
  } else if (address !== undefined && parseIp(gateway).family !== address.family) {
    report(path, `${quote(gateway)} is of another family than ${formatCidr(address)}`);
  }
}

function checkRoutes(routes: Json | undefined, path: string, report: Report): void {
  for (const [index, route] of listOf(routes).entries()) {
    const at = `${path}[${index}]`;
    if (!isJsonObject(route)) {
      report(at, "must be an object with dst");
      continue;
    }
    const dst = cidr(route["dst"], `${at}.dst`, report);
    checkGateway(route["gw"], dst, { path: `${at}.gw`, report });
  }
}

/** Sets that share an address would give it out twice; sets that share a subnet only are odd. */
function compareSets(sets: readonly Placed<RangeSet>[], fault: Report, warning: Report): void {
  const compared = sets.slice(0, mostCompared);
  for (const [index, { value, path }] of compared.entries()) {
    for (const earlier of compared.slice(0, index)) {
      if (setsOverlap(earlier.value, value)) fault(path, `overlaps ${earlier.path}`);
      else if (shareSubnet(earlier.value, value)) {
        warning(path, `its subnet overlaps one of ${earlier.path}`);
      }
    }
  }
}

function shareSubnet(left: RangeSet, right: RangeSet): boolean {
  return left.some((one) => right.some((other) => overlaps(one.subnet, other.subnet)));
}

function shown(value: Json | undefined): string {
  return typeof value === "string" ? quote(value) : quote(JSON.stringify(value) ?? "nothing");
}
