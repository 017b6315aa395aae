import {
  type Cidr,
  ipToBytes,
  isCidr,
  isIp,
  maskOf,
  networkOf,
  parseCidr,
  parseIp,
} from "../../../lib/base/ip.ts";
import type { Expression } from "../../../lib/netlink/nftables-expressions.ts";
import { loadAddress, matchFamily } from "../nftables/masquerade.ts";

interface PrefixCondition {
  readonly kind: "source" | "destination";
  readonly equal: boolean;
  readonly prefix: Cidr;
}

interface InterfaceCondition {
  readonly kind: "iifname" | "oifname";
  readonly equal: boolean;
  readonly name: string;
}

/** One condition that traffic to a host port must meet: `conditionsV4` and `conditionsV6` of portmap. */
export type PortCondition = PrefixCondition | InterfaceCondition;

const words: Readonly<Record<string, PortCondition["kind"]>> = {
  "-s": "source",
  "--source": "source",
  "--src": "source",
  "-d": "destination",
  "--destination": "destination",
  "--dst": "destination",
  "-i": "iifname",
  "--in-interface": "iifname",
  "-o": "oifname",
  "--out-interface": "oifname",
  saddr: "source",
  daddr: "destination",
  iifname: "iifname",
  oifname: "oifname",
};
const hint =
  "known are the iptables matches [!] -s, -d, -i, -o and the nftables matches ip saddr, ip daddr, iifname, oifname (with != too)";

/**
 * Reads conditions in either language: `["!", "-d", "192.0.2.0/24"]` of iptables or `["ip", "saddr", "!=", "192.0.2.0/24"]` of nftables.
 * Gives a text that says what is wrong when they are something else.
 */
export function parseCondition(
  conditions: readonly string[],
  family: 4 | 6,
): PortCondition[] | string {
  const rest = conditions.flatMap((word) => word.trim().split(/\s+/)).filter((word) => word !== "");
  const parsed: PortCondition[] = [];
  while (rest.length > 0) {
    const negated = takeIf(rest, ["!"]);
    takeIf(rest, ["ip", "ip6", "meta"]);
    const word = rest.shift() ?? "";
    const kind = words[word];
    if (kind === undefined) return `"${word}" is unknown: ${hint}`;
    const equal = !(takeIf(rest, ["!=", "!"]) || negated);
    takeIf(rest, ["=="]);
    const condition = conditionOf(kind, equal, { text: rest.shift() ?? "", family });
    if (typeof condition === "string") return `"${word}" ${condition}`;
    parsed.push(condition);
  }
  return parsed;
}

function takeIf(list: string[], wanted: readonly string[]): boolean {
  if (!wanted.includes(list[0] ?? "")) return false;
  list.shift();
  return true;
}

function conditionOf(
  kind: PortCondition["kind"],
  equal: boolean,
  { text, family }: { text: string; family: 4 | 6 },
): PortCondition | string {
  if (kind === "iifname" || kind === "oifname") {
    const name = text.replaceAll('"', "");
    return name === "" || name.length > 15
      ? `has no interface name: "${text}"`
      : { kind, equal, name };
  }
  const bits = family === 4 ? 32 : 128;
  const prefix = isCidr(text)
    ? networkOf(parseCidr(text))
    : isIp(text)
      ? { ...parseIp(text), prefixLength: bits }
      : undefined;
  return prefix?.family === family
    ? { kind, equal, prefix }
    : `has no IPv${family} address or prefix: "${text}"`;
}

/** The conditions as a rule's expressions. */
export function conditionExpressions(
  conditions: readonly PortCondition[],
  family: 4 | 6,
): Expression[] {
  return [
    ...matchFamily(family),
    ...conditions.flatMap((condition) => matchCondition(condition, family)),
  ];
}

function matchCondition(condition: PortCondition, family: 4 | 6): Expression[] {
  const { equal } = condition;
  if ("name" in condition) {
    const key = condition.kind;
    const value = interfaceName(condition.name);
    return [
      { kind: "meta", key, into: 1 },
      { kind: "compare", register: 1, equal, value },
    ];
  }
  return [
    loadAddress(family, condition.kind, 1),
    { kind: "mask", register: 1, mask: ipToBytes(maskOf(condition.prefix)) },
    { kind: "compare", register: 1, equal, value: ipToBytes(condition.prefix) },
  ];
}

/** A whole name fills the register; one that ends in `+` (iptables) or `*` (nftables) compares its beginning only. */
function interfaceName(name: string): Buffer {
  if (/[+*]$/.test(name)) return Buffer.from(name.slice(0, -1));
  const bytes = Buffer.alloc(16);
  bytes.write(name);
  return bytes;
}
