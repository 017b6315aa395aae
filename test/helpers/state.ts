import assert from "node:assert/strict";
import { readdirSync, readlinkSync } from "node:fs";
import type { JsonObject } from "../../lib/base/json.ts";
import { type Place, runCommand } from "./lab.ts";

/** What a namespace's kernel holds, as `ip` and `nft` see it: a second opinion beside our own netlink code. */
export interface KernelState {
  readonly links: readonly JsonObject[];
  readonly addresses: readonly JsonObject[];
  readonly routes: readonly JsonObject[];
  readonly rules: readonly JsonObject[];
  readonly nft: readonly JsonObject[];
  /** /proc/sys/net path to value; only where asked for. */
  readonly sysctls: Readonly<Record<string, string>>;
}

export interface StateOptions {
  /** Folders or files below /proc/sys/net, for example "ipv4/conf/eth0". */
  readonly sysctls?: readonly string[];
}

/** Keys that change by themselves: timers, counters, and states that follow a link's coming up. */
const volatile = new Set(
  (
    "hello_timer tcn_timer topology_change_timer gc_timer topology_change topology_change_detected operstate handle " +
    "hold_timer message_age_timer forward_delay_timer valid_life_time preferred_life_time tentative dadfailed expires packets bytes"
  ).split(" "),
);

/** Flags that follow the carrier, which comes and goes a moment after what caused it. */
const carrier = new Set(["NO-CARRIER", "LOWER_UP", "M-DOWN", "linkdown"]);

/** The state without what changes by itself, in a stable order. Indices, MACs and generated names are kept. */
export function kernelState(place: Place, options: StateOptions = {}): KernelState {
  const ip = (...args: string[]) =>
    sorted(parse(runCommand(["ip", "-n", place.name, "-j", "-d", ...args])));
  const addresses = ip("address");
  return {
    links: ip("link"),
    addresses: addresses.map((link) => ({ ifname: link["ifname"], addr_info: link["addr_info"] })),
    routes: [
      ...ip("-4", "route", "show", "table", "all"),
      ...ip("-6", "route", "show", "table", "all").filter((route) => !isAddressEcho(route)),
    ],
    rules: [...ip("-4", "rule"), ...ip("-6", "rule")],
    nft: nftRuleset(place),
    sysctls: readSysctls(place, options.sysctls ?? []),
  };
}

/**
 * The kernel adds these for each IPv6 address when duplicate address detection has ended, a second or more after the address, which
 * is compared itself.
 */
function isAddressEcho(route: JsonObject): boolean {
  return ["local", "anycast"].includes(String(route["type"])) && route["protocol"] === "kernel";
}

/** The nftables ruleset as a list of objects (tables, chains, sets, maps, rules), without handles and counters. */
export function nftRuleset(place: Place): JsonObject[] {
  const text = place.run("nft", "-j", "list", "ruleset");
  const { nftables } = JSON.parse(text) as { nftables: JsonObject[] };
  return nftables.filter((item) => !("metainfo" in item)).map((item) => strip(item) as JsonObject);
}

function readSysctls(place: Place, paths: readonly string[]): Record<string, string> {
  if (paths.length === 0) return {};
  // Some files can't be read (write-only ones), so grep's own exit status says nothing.
  const text = place.run(
    "sh",
    "-c",
    'cd /proc/sys/net && grep -rsH "" "$@" || true',
    "sh",
    ...paths,
  );
  const pairs = text.split("\n").flatMap((line) => {
    const colon = line.indexOf(":");
    return colon < 0 ? [] : [[line.slice(0, colon), line.slice(colon + 1)] as const];
  });
  return Object.fromEntries(pairs.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function parse(text: string): JsonObject[] {
  return text.trim() === ""
    ? []
    : (JSON.parse(text) as JsonObject[]).map((item) => strip(item) as JsonObject);
}

function strip(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.filter((item) => !carrier.has(item));
    // `ip` prints an empty object for each link that a filter left out.
    return items.map(strip).filter((item) => JSON.stringify(item) !== "{}");
  }
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      volatile.has(key) ? [] : [[key, strip(inner)]],
    ),
  );
}

function sorted(items: readonly JsonObject[]): JsonObject[] {
  const key = (item: JsonObject) => String(item["ifname"] ?? JSON.stringify(item));
  return items.toSorted((a, b) => (key(a) < key(b) ? -1 : 1));
}

/**
 * Remembers what there is (kernel state of the places, namespaces and open files of this process or of `pid`), and tells later
 * whether anything was left or lost.
 */
export class LeakCheck {
  readonly #places: readonly Place[];
  readonly #pid: number;
  readonly #before: JsonObject;

  constructor(places: readonly Place[], options: { readonly pid?: number } = {}) {
    this.#places = places;
    this.#pid = options.pid ?? process.pid;
    this.#before = this.#look();
  }

  /** Throws an AssertionError that shows the difference. */
  assertClean(message = "something was left behind or lost"): void {
    assert.deepEqual(this.#look(), this.#before, message);
  }

  #look(): JsonObject {
    const state = Object.fromEntries(this.#places.map((place) => [place.name, kernelState(place)]));
    return JSON.parse(
      JSON.stringify({ state, netns: ownNamespaces(), fds: openFiles(this.#pid) }),
    ) as JsonObject;
  }
}

/** Named namespaces that this process made. */
function ownNamespaces(): string[] {
  return readdirSync("/run/netns")
    .filter((name) => name.startsWith(`podnet-test-${process.pid}-`))
    .toSorted();
}

/** What a process has open: the number of descriptors of each kind that is worth a leak check (files by their path). */
export function openFiles(pid: number): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    let target: string;
    try {
      target = readlinkSync(`/proc/${pid}/fd/${fd}`);
    } catch {
      continue; // the descriptor of this very listing
    }
    // The event loop opens and closes its own pipes and anonymous inodes as it likes.
    if (/^(pipe|anon_inode):|^\/dev\/|^\/proc\/\d+\/fd/.test(target)) continue;
    const kind = target.replace(/:\[\d+\]$/, "");
    counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return Object.fromEntries(Object.entries(counts).toSorted());
}
