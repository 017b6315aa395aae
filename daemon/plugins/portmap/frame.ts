import { createHash } from "node:crypto";
import { type Cidr, ipToBytes, maskOf } from "../../../lib/base/ip.ts";
import type { NftChange, NftTable, NftType } from "../../../lib/netlink/nftables-codec.ts";
import type { Expression } from "../../../lib/netlink/nftables-expressions.ts";
import { ipLayout, loadAddress, matchFamily } from "../nftables/masquerade.ts";
import { conditionExpressions, type PortCondition } from "./conditions.ts";

/**
 * The nftables table of portmap. Traffic to an address of the node goes through `hostports`, which looks up first the mappings of that address, then those
 * of all addresses; conditions of an attachment are a chain that its ports go through before:
 *
 *   map ports4 { tcp . 8080 : 10.1.0.2 . 80 }                    map hostip4 { 192.0.2.1 . tcp . 8080 : 10.1.0.2 . 80 }
 *   map when4 { tcp . 8080 : goto when4-1f0c }                   map hostip-when4 { 192.0.2.1 . tcp . 8080 : goto when4-1f0c }
 *   map answer4 { 10.1.0.2 : goto near4-24 }                     set near4 { 10.1.0.2 . 10.1.0.0 }
 *
 * What was forwarded so and comes from the node's loopback or from near the pod is masqueraded, or its answers would take another way back.
 */
export const portmapTable: NftTable = { family: "inet", name: "podnet_portmap" };

/** The sets that decide who has a port. */
export const portSets = ["ports4", "ports6", "hostip4", "hostip6"];
export const portmapSets = [
  ...portSets,
  ...[4, 6].flatMap((family) => [
    `when${family}`,
    `hostip-when${family}`,
    `answer${family}`,
    `near${family}`,
  ]),
];

const IPS_DST_NAT = 0x20;
const RTN_LOCAL = 2;
const leave: Expression = { kind: "verdict", verdict: { kind: "return" } };

/** Name of the chain that masquerades what comes from the pod's prefix. */
export function nearChain(prefix: Cidr): string {
  return `near${prefix.family}-${prefix.prefixLength}`;
}

/** Name of the chain that masquerades everything. */
export const everythingChain = "everything";

/** Name of the chain for these conditions. */
export function conditionChain(conditions: readonly PortCondition[], family: 4 | 6): string {
  const text = JSON.stringify(conditions, (_, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  return `when${family}-${createHash("sha256").update(text).digest("hex").slice(0, 12)}`;
}

export interface FrameParts {
  readonly prefixes: readonly Cidr[];
  readonly conditions: Readonly<Record<4 | 6, readonly PortCondition[]>>;
}

/** The table, its sets and chains, and the chains for these prefixes and conditions: the same whoever makes it. */
export function portmapFrame({ prefixes, conditions }: FrameParts): NftChange[] {
  return [
    { kind: "add-table" },
    ...([4, 6] as const).flatMap(familySets),
    ...chain("mapped", [...lookups(4, "maps"), ...lookups(6, "maps")]),
    ...([4, 6] as const).flatMap((family) => conditionalChain(conditions[family], family)),
    ...chain("hostports", [...lookups(4, "all"), ...lookups(6, "all")]),
    ...chain(everythingChain, [[{ kind: "masquerade" }]]),
    ...prefixes.flatMap((prefix) => chain(nearChain(prefix), nearRules(prefix))),
    ...hook("prerouting", -100, toNode()),
    ...hook("output", -100, toNode()),
    ...hook("postrouting", 100, answers()),
  ];
}

function chain(name: string, rules: readonly Expression[][]): NftChange[] {
  return [{ kind: "add-chain", chain: { name } }, ...fill(name, rules)];
}

function hook(
  at: "prerouting" | "output" | "postrouting",
  priority: number,
  rules: readonly Expression[][],
): NftChange[] {
  return [
    { kind: "add-chain", chain: { name: at, hook: { type: "nat", at, priority } } },
    ...fill(at, rules),
  ];
}

function fill(name: string, rules: readonly Expression[][]): NftChange[] {
  return [
    { kind: "flush-chain", chain: name },
    ...rules.map((expressions): NftChange => ({ kind: "add-rule", chain: name, expressions })),
  ];
}

function familySets(family: 4 | 6): NftChange[] {
  const address: NftType = family === 4 ? "ipv4_addr" : "ipv6_addr";
  const port: NftType[] = ["inet_proto", "inet_service"];
  const target: NftType[] = [address, "inet_service"];
  return [
    { kind: "add-set", set: { name: `ports${family}`, key: port, data: target } },
    { kind: "add-set", set: { name: `hostip${family}`, key: [address, ...port], data: target } },
    { kind: "add-set", set: { name: `when${family}`, key: port, data: "verdict" } },
    {
      kind: "add-set",
      set: { name: `hostip-when${family}`, key: [address, ...port], data: "verdict" },
    },
    { kind: "add-set", set: { name: `answer${family}`, key: [address], data: "verdict" } },
    { kind: "add-set", set: { name: `near${family}`, key: [address, address] } },
  ];
}

/** The lookups of one family: the node's address before all addresses, and with "all" each one's conditions before it. */
function lookups(family: 4 | 6, which: "all" | "maps"): Expression[][] {
  const keys = { hostip: addressKey(family), ports: portKey(1) };
  return (["hostip", "ports"] as const).flatMap((set) => {
    const conditions = set === "hostip" ? `hostip-when${family}` : `when${family}`;
    const dnat: Expression[] = [
      ...matchFamily(family),
      ...keys[set],
      { kind: "lookup", set: `${set}${family}`, register: 1, into: 1 },
      { kind: "dnat", family, address: 1, port: ipLayout[family].second },
    ];
    if (which === "maps") return [dnat];
    return [
      [
        ...matchFamily(family),
        ...keys[set],
        { kind: "lookup", set: conditions, register: 1, into: 0 },
      ],
      dnat,
    ];
  });
}

/** `meta l4proto . th dport`, from a register on. */
function portKey(register: number): Expression[] {
  const second = nextRegister(register);
  return [
    { kind: "meta", key: "l4proto", into: register },
    { kind: "payload", base: "transport", offset: 2, length: 2, into: second },
  ];
}

function addressKey(family: 4 | 6): Expression[] {
  return [loadAddress(family, "destination", 1), ...portKey(ipLayout[family].second)];
}

/** The register of 4 bytes after this one: 1 and 2 are the first of four each. */
function nextRegister(register: number): number {
  return register < 8 ? 8 + (register - 1) * 4 + 1 : register + 1;
}

function conditionalChain(conditions: readonly PortCondition[], family: 4 | 6): NftChange[] {
  if (conditions.length === 0) return [];
  const verdict: Expression = { kind: "verdict", verdict: { kind: "goto", chain: "mapped" } };
  return chain(conditionChain(conditions, family), [
    [...conditionExpressions(conditions, family), verdict],
  ]);
}

function toNode(): Expression[][] {
  return [
    [
      { kind: "destinationType", into: 1 },
      { kind: "compare", register: 1, equal: false, value: hostOrder(RTN_LOCAL) },
      leave,
    ],
    [{ kind: "verdict", verdict: { kind: "goto", chain: "hostports" } }],
  ];
}

function answers(): Expression[][] {
  const notForwarded: Expression[] = [
    { kind: "connectionStatus", into: 1 },
    { kind: "mask", register: 1, mask: hostOrder(IPS_DST_NAT) },
    { kind: "compare", register: 1, equal: true, value: hostOrder(0) },
    leave,
  ];
  const toPod = (family: 4 | 6): Expression[] => [
    ...matchFamily(family),
    loadAddress(family, "destination", 1),
    { kind: "lookup", set: `answer${family}`, register: 1, into: 0 },
  ];
  return [notForwarded, toPod(4), toPod(6)];
}

function nearRules(prefix: Cidr): Expression[][] {
  const { family } = prefix;
  const { second } = ipLayout[family];
  const near: Expression[] = [
    ...matchFamily(family),
    loadAddress(family, "destination", 1),
    loadAddress(family, "source", second),
    { kind: "mask", register: second, mask: ipToBytes(maskOf(prefix)) },
    { kind: "lookup", set: `near${family}`, register: 1 },
    { kind: "masquerade" },
  ];
  if (family === 6) return [near];
  const loopback: Expression[] = [
    ...matchFamily(4),
    loadAddress(4, "source", 1),
    { kind: "compare", register: 1, equal: true, value: Uint8Array.of(127, 0, 0, 1) },
    { kind: "masquerade" },
  ];
  return [near, loopback];
}

/** Registers of fib and ct hold numbers as the machine does. */
function hostOrder(value: number): Buffer {
  return Buffer.from(Uint32Array.of(value).buffer);
}
