import {
  type Cidr,
  contains,
  formatCidr,
  formatIp,
  type Ip,
  IpError,
  lastIp,
  networkOf,
  offsetIp,
} from "../base/ip.ts";

/** What a configuration says of one range. */
export interface RangeSpec {
  readonly subnet: Cidr;
  readonly rangeStart: Ip | undefined;
  readonly rangeEnd: Ip | undefined;
  readonly gateway: Ip | undefined;
}

/** A range of addresses to allocate from; both ends belong to it. */
export interface AddressRange {
  readonly subnet: Cidr;
  readonly start: Ip;
  readonly end: Ip;
  /** Never allocated. May lie outside of the subnet, as in the reference since 1.9. */
  readonly gateway: Ip;
}

/** Ranges of one family that stand in for each other: an attachment gets one address of a set. Never empty. */
export type RangeSet = readonly [AddressRange, ...AddressRange[]];

/**
 * Fills in what the configuration leaves open: the first address is the gateway, the whole subnet without network and IPv4 broadcast
 * address is the range. Throws an IpError that names the wrong value.
 */
export function buildRange(spec: RangeSpec): AddressRange {
  const { subnet } = spec;
  if (subnet.prefixLength > (subnet.family === 4 ? 30 : 126)) {
    throw new IpError(`subnet "${formatCidr(subnet)}": too small to allocate from`);
  }
  if (networkOf(subnet).value !== subnet.value) {
    const network = formatCidr(networkOf(subnet));
    throw new IpError(`subnet "${formatCidr(subnet)}": has host bits set, use "${network}"`);
  }
  const first = offsetIp(subnet, 1);
  const last = lastIp(subnet);
  const range: AddressRange = {
    subnet,
    start: within(subnet, "rangeStart", spec.rangeStart ?? first),
    end: within(
      subnet,
      "rangeEnd",
      spec.rangeEnd ?? (subnet.family === 4 ? offsetIp(last, -1) : last),
    ),
    gateway: spec.gateway ?? first,
  };
  if (range.start.value > range.end.value) {
    throw new IpError(
      `rangeStart "${formatIp(range.start)}": after rangeEnd "${formatIp(range.end)}"`,
    );
  }
  return range;
}

function within(subnet: Cidr, field: string, ip: Ip): Ip {
  if (contains(subnet, ip)) return ip;
  throw new IpError(`${field} "${formatIp(ip)}": not in subnet "${formatCidr(subnet)}"`);
}

/** Builds a set. Throws an IpError when it is empty, mixes families or overlaps itself. */
export function buildRangeSet(specs: readonly RangeSpec[]): RangeSet {
  const [first, ...others] = specs.map(buildRange);
  if (first === undefined) throw new IpError("has no range");
  const ranges: RangeSet = [first, ...others];
  for (const [index, range] of others.entries()) {
    if (range.subnet.family !== first.subnet.family) {
      throw new IpError(
        `mixes "${formatCidr(first.subnet)}" and "${formatCidr(range.subnet)}": one address family a set`,
      );
    }
    const other = ranges.slice(0, index + 1).find((earlier) => overlap(earlier, range));
    if (other !== undefined) {
      throw new IpError(`ranges ${formatRange(other)} and ${formatRange(range)} overlap`);
    }
  }
  return ranges;
}

function overlap(left: AddressRange, right: AddressRange): boolean {
  if (left.subnet.family !== right.subnet.family) return false;
  return left.start.value <= right.end.value && right.start.value <= left.end.value;
}

/** Whether two sets have an address in common. */
export function setsOverlap(left: RangeSet, right: RangeSet): boolean {
  return left.some((one) => right.some((other) => overlap(one, other)));
}

/** The range of the set that the address can be allocated from. */
export function rangeOf(set: RangeSet, ip: Ip): AddressRange | undefined {
  return set.find(
    (range) =>
      range.subnet.family === ip.family &&
      range.start.value <= ip.value &&
      ip.value <= range.end.value,
  );
}

/**
 * The first address after `last` that `taken` does not hold, round robin over the whole set, so that a freed address rests as long
 * as possible. Gateways are left out. undefined: none is left.
 */
export function nextFree(
  set: RangeSet,
  last: Ip | undefined,
  taken: (value: bigint) => boolean,
): { readonly ip: Ip; readonly range: AddressRange } | undefined {
  const begin = last === undefined ? -1 : set.findIndex((range) => rangeOf([range], last));
  const { family } = set[0].subnet;
  for (const { range, from, to } of spans(set, begin, last)) {
    const gateway = range.gateway.family === family ? range.gateway.value : -1n;
    for (let value = from; value <= to; value++) {
      if (value !== gateway && !taken(value)) return { ip: { family, value }, range };
    }
  }
  return undefined;
}

interface Span {
  readonly range: AddressRange;
  readonly from: bigint;
  readonly to: bigint;
}

/** The set from just after `last` around to `last` itself. */
function* spans(set: RangeSet, begin: number, last: Ip | undefined): Generator<Span> {
  const current = set[begin];
  if (current === undefined || last === undefined) {
    for (const range of set) yield { range, from: range.start.value, to: range.end.value };
    return;
  }
  yield { range: current, from: last.value + 1n, to: current.end.value };
  for (const range of [...set.slice(begin + 1), ...set.slice(0, begin)]) {
    yield { range, from: range.start.value, to: range.end.value };
  }
  yield { range: current, from: current.start.value, to: last.value };
}

/** `10.0.0.1-10.0.0.254` */
export function formatRange(range: AddressRange): string {
  return `${formatIp(range.start)}-${formatIp(range.end)}`;
}

/** The ranges of a set, separated by commas. */
export function formatRangeSet(set: RangeSet): string {
  return set.map(formatRange).join(",");
}
