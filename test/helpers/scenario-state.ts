import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { JsonObject } from "../../lib/base/json.ts";
import type { Place } from "./lab.ts";
import { openFiles } from "./state.ts";

/** One thing that a node has: its kind (link, address, record, ...) and what it is, as text. */
export interface Row {
  readonly kind: string;
  readonly text: string;
}

/** Where a node keeps what is compared. */
export interface Surveyed {
  readonly node: Place;
  readonly pods: readonly Place[];
  /** Folders whose files count, by what they hold: IPAM entries, records, claims. */
  readonly folders: Readonly<Record<string, string>>;
  readonly pid?: number;
}

/** Keys that change by themselves, or say in numbers what another row says in names. */
const volatile = new Set(
  (
    "hello_timer tcn_timer topology_change_timer gc_timer topology_change topology_change_detected operstate " +
    "hold_timer message_age_timer forward_delay_timer valid_life_time preferred_life_time tentative dadfailed expires packets bytes " +
    "ifindex link_index link_netnsid index handle flags root_id bridge_id designated_bridge port_id port_no id no no_linklocal_learn " +
    "stable-privacy refcnt metainfo tcm_handle root designated_root designated_cost root_port root_path_cost root_cost state tcp drops overlimits qlen backlog requeues link_pointtopoint designated_port"
  ).split(" "),
);

const separator = "=-=-=";
const questions = [
  "ip -j -d link",
  "ip -j address",
  "ip -4 -j route show table all",
  "ip -6 -j route show table all",
  "ip -4 -j rule",
  "ip -6 -j rule",
  "tc -j qdisc",
  "nft -j list ruleset",
  // The settings that plugins write, of every interface.
  "cd /proc/sys/net && grep -sH '' ipv4/ip_forward ipv6/conf/all/forwarding ipv4/conf/*/arp_filter ipv4/conf/*/arp_notify ipv4/conf/*/rp_filter ipv4/conf/*/proxy_arp ipv4/conf/*/route_localnet ipv4/conf/*/forwarding ipv6/conf/*/disable_ipv6 ipv6/conf/*/accept_dad ipv6/conf/*/accept_ra ipv6/conf/*/forwarding || true",
];
const script = questions.map((question) => `( ${question} ); echo ${separator}`).join("\n");

/** Everything that podnet could leave or lose, as rows without what differs between two runs of the same work. */
export function survey({ node, pods, folders, pid }: Surveyed): Row[] {
  const rows = [
    ...kernelRows("node", node),
    ...pods.flatMap((pod, at) => kernelRows(`pod${at}`, pod)),
  ];
  for (const [kind, folder] of Object.entries(folders)) rows.push(...fileRows(kind, folder));
  if (pid !== undefined) rows.push(...descriptorRows(pid));
  return rows;
}

function kernelRows(where: string, place: Place): Row[] {
  const parts = place.run("sh", "-c", script).split(`${separator}\n`);
  const lists = parts.slice(0, 7).map((text) => objects(text));
  const [links = [], addresses = [], v4 = [], v6 = [], rule4 = [], rule6 = [], qdiscs = []] = lists;
  const found: (readonly [string, unknown])[] = [
    ...links.map((link) => ["link", link] as const),
    ...addresses.flatMap(addressesOf).map((address) => ["address", address] as const),
    ...v4.map((route) => ["route", route] as const),
    ...v6.filter((route) => !isOfTheKernel(route)).map((route) => ["route", route] as const),
    ...[...rule4, ...rule6].map((rule) => ["rule", rule] as const),
    ...qdiscs
      .filter(({ kind }) => kind !== "noqueue")
      .map(({ kind, dev, parent, options }) => ["qdisc", { kind, dev, parent, options }] as const),
    ...nftObjects(parts[7] ?? "").map((item) => ["nft", item] as const),
  ];
  const rows = found.map(([kind, value]) => ({ kind: `${where} ${kind}`, text: textOf(value) }));
  const sysctls = (parts[8] ?? "").split("\n").filter((line) => line !== "");
  return [...rows, ...sysctls.map((line) => ({ kind: `${where} sysctl`, text: nameless(line) }))];
}

function objects(text: string): JsonObject[] {
  const list = text.trim() === "" ? [] : (JSON.parse(text) as JsonObject[]);
  return list.filter((item) => JSON.stringify(item) !== "{}");
}

function addressesOf(link: JsonObject): JsonObject[] {
  const infos = (link["addr_info"] ?? []) as JsonObject[];
  // Link-local ones come from the MAC some time after the link.
  return infos
    .filter((info) => info["scope"] !== "link" || !String(info["local"]).startsWith("fe80"))
    .map(({ local, prefixlen, scope, label }) => ({
      dev: link["ifname"] ?? "",
      ...{ local, prefixlen, scope, label },
    })) as JsonObject[];
}

/** The kernel adds these for each address when duplicate address detection has ended. */
function isOfTheKernel(route: JsonObject): boolean {
  return (
    ["local", "anycast", "multicast"].includes(String(route["type"])) ||
    String(route["dst"]).startsWith("fe80")
  );
}

/** Elements of sets and maps one by one. */
function nftObjects(text: string): unknown[] {
  const { nftables } = JSON.parse(text) as { nftables: JsonObject[] };
  return nftables.flatMap((item) => {
    const [[kind, value] = ["", {}]] = Object.entries(item) as [string, JsonObject][];
    if (kind === "metainfo") return [];
    const { elem = [], ...rest } = value;
    const elements = (elem as unknown[]).map((one) => ({ element: one, of: value["name"] }));
    return [{ [kind]: rest }, ...elements];
  });
}

function textOf(value: unknown): string {
  return nameless(JSON.stringify(strip(value)));
}

/** Puts a word for what is drawn at random or given out in turn: hardware addresses, host parts, names made from ids. */
function nameless(text: string): string {
  return text
    .replaceAll(/\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b/g, "MAC")
    .replaceAll(/\b[0-9a-f]{12}-[0-9a-f]{12}\b/g, "OWNER")
    .replaceAll(/\b(veth|ifb|bwp|pn|pns)[0-9a-f]{8,12}\b/g, "$1HASH")
    .replaceAll(/\b10\.(\d+)\.\d+\.(?!0\b|1\b)\d+\b/g, "10.$1.N.N")
    .replaceAll(/\b(fd\d\d):(:\d+)?:(?!0\b|1\b)[0-9a-f]+\b(?!\/)/g, "$1::N")
    .replaceAll(/\b(scn-[a-z-]+)\d+\b/g, "$1N");
}

function strip(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(strip);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      volatile.has(key) || inner === undefined ? [] : [[key, strip(inner)]],
    ),
  );
}

/** Hints and locks are no entries. */
const hints = /^(lock|owner|last_reserved_ip.*)$/;

function fileRows(kind: string, folder: string): Row[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return fileRows(`${kind} ${nameless(entry.name)}`, path);
    return hints.test(entry.name) ? [] : [{ kind, text: nameless(entry.name) }];
  });
}

/** Namespaces and files: sockets and the event loop's own come and go. */
function descriptorRows(pid: number): Row[] {
  if (!existsSync(`/proc/${pid}/fd`)) return [];
  const counted = Object.entries(openFiles(pid)).filter(([name]) => !/^socket|\[/.test(name));
  return counted.map(([name, count]) => ({ kind: "descriptor", text: `${count} ${name}` }));
}

/** What is too many and what is too few. */
export interface Difference {
  readonly extra: readonly Row[];
  readonly missing: readonly Row[];
}

/** Compares as multisets. */
export function difference(expected: readonly Row[], found: readonly Row[]): Difference {
  return { extra: without(found, expected), missing: without(expected, found) };
}

function without(rows: readonly Row[], others: readonly Row[]): Row[] {
  const counts = new Map<string, number>();
  const key = ({ kind, text }: Row) => `${kind}\0${text}`;
  for (const row of others) counts.set(key(row), (counts.get(key(row)) ?? 0) + 1);
  return rows.filter((row) => {
    const count = counts.get(key(row)) ?? 0;
    counts.set(key(row), count - 1);
    return count <= 0;
  });
}

export function isSame({ extra, missing }: Difference): boolean {
  return extra.length + missing.length === 0;
}

const mostLines = 40;

/** The difference as people read it: a row a line, `+` for what should not be there, `-` for what should. */
export function differenceTable({ extra, missing }: Difference): string {
  const lines = [
    ...extra.map((row) => ["+", row] as const),
    ...missing.map((row) => ["-", row] as const),
  ];
  const width = Math.max(...lines.map(([, { kind }]) => kind.length));
  const more = lines.length > mostLines ? [`... and ${lines.length - mostLines} more`] : [];
  const shown = lines
    .slice(0, mostLines)
    .map(([sign, { kind, text }]) => `${sign} ${kind.padEnd(width)} | ${text}`);
  return [...shown, ...more].join("\n");
}

/** The size of a file, and 0 for none. */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

export function linesOf(path: string): string[] {
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "");
}
