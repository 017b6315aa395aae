import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonObject } from "../../../lib/base/json.ts";
import type { Place } from "../../helpers/lab.ts";

/** What a call left: every leaf of it by a path that says where it stands, so that two worlds can be compared value by value. */
export type Snapshot = ReadonlyMap<string, string>;

/** Names that differ between two runs of the same thing, and what stands for them. */
export class Names {
  readonly #labels = new Map<string, string>();

  /** The first label of a text stays. */
  add(text: string | undefined, label: string): void {
    if (text !== undefined && text !== "" && !this.#labels.has(text)) this.#labels.set(text, label);
  }

  apply(text: string): string {
    let out = text;
    for (const [name, label] of this.#labels) out = out.replaceAll(name, label);
    return out;
  }
}

const script = `
ip -j -d link; echo; echo ---; ip -j address; echo; echo ---; ip -j -d route show table all; echo; echo ---
ip -j -6 -d route show table all; echo; echo ---; bridge -j vlan; echo; echo ---
ip -j rule; echo; echo ---; ip -j -6 rule; echo; echo ---; tc -j qdisc; echo; echo ---
cd /proc/sys/net && grep -Hs '' core/somaxconn ipv4/ip_forward ipv6/conf/all/forwarding \
  ipv6/conf/*/{keep_addr_on_down,accept_ra,accept_dad,enhanced_dad,disable_ipv6,ndisc_notify,proxy_ndp} \
  ipv4/conf/*/{arp_notify,forwarding,proxy_arp,rp_filter}; true
`;

interface Raw {
  readonly links: readonly JsonObject[];
  readonly addresses: readonly JsonObject[];
  readonly routes: readonly JsonObject[];
  readonly vlans: readonly JsonObject[];
  readonly rules: readonly JsonObject[];
  readonly qdiscs: readonly JsonObject[];
  readonly sysctls: readonly string[];
}

function look(place: Place): Raw {
  const [links, addresses, routes4, routes6, vlans, rules4, rules6, qdiscs, sysctls = ""] = place
    .run("bash", "-c", script)
    .split("---\n");
  const list = (text: string | undefined) =>
    text === undefined || text.trim() === "" ? [] : (JSON.parse(text) as JsonObject[]);
  return {
    links: list(links),
    addresses: list(addresses),
    routes: [...list(routes4), ...list(routes6)],
    vlans: list(vlans),
    rules: [...list(rules4), ...list(rules6)],
    qdiscs: list(qdiscs),
    sysctls: sysctls.trim().split("\n"),
  };
}

/** Both namespaces, if there are any, and the IPAM folder, in comparable form. `names` learns the generated names on the way. */
export function snapshot(
  world: {
    readonly places?: { readonly node: Place; readonly pod: Place };
    readonly folder: string;
  },
  names: Names,
): Snapshot {
  const out = new Map<string, string>();
  if (world.places !== undefined) {
    const node = look(world.places.node);
    const pod = look(world.places.pod);
    learnNames({ node, pod }, names);
    describe(node, "node", { names, out });
    describe(pod, "pod", { names, out });
  }
  describeFolder(world.folder, out);
  return out;
}

function learnNames({ node, pod }: { node: Raw; pod: Raw }, names: Names): void {
  for (const link of pod.links) names.add(mac(link), `<mac of pod's ${String(link["ifname"])}>`);
  for (const link of node.links) {
    const name = String(link["ifname"]);
    if (!/^veth[0-9a-f]{8,11}$/.test(name)) continue;
    const peer =
      typeof link["link"] === "string"
        ? link["link"]
        : pod.links.find((other) => other["ifindex"] === link["link_index"])?.["ifname"];
    names.add(name, `<port of ${String(peer ?? "nobody")}>`);
    // A bridge takes the lowest of its ports' addresses, which chance decides.
    names.add(mac(link), "<mac of a port>");
  }
  for (const link of node.links) {
    if (/^bwp[0-9a-f]{12}$/.test(String(link["ifname"]))) {
      names.add(String(link["ifname"]), "<ifb>");
      names.add(mac(link), "<mac of ifb>");
    }
    names.add(mac(link), `<mac of ${String(link["ifname"])}>`);
  }
}

/** Addresses that tests set begin with 0a:00:00:00 and are compared as they are. */
function mac(link: JsonObject): string | undefined {
  const address = String(link["address"] ?? "");
  return address.startsWith("0a:00:00:00:") || address === "00:00:00:00:00:00"
    ? undefined
    : address;
}

interface Sink {
  readonly names: Names;
  readonly out: Map<string, string>;
}

const linkKeys = ["mtu", "master", "address", "txqlen", "group", "altnames", "ifalias"];
const kindKeys =
  "mode bcqueuelen id protocol type multi_queue user group pi vnet_hdr persist".split(" ");
const infoKeys = [
  "vlan_filtering",
  "vlan_default_pvid",
  "stp_state",
  "mcast_snooping",
  ...kindKeys,
];
const portKeys = ["state", "hairpin", "isolated", "guard", "learning", "flood", "neigh_suppress"];

function describe(raw: Raw, where: string, { names, out }: Sink): void {
  const put: Put = (path, value) => {
    if (value === undefined) return;
    out.set(names.apply(`${where}.${path}`), names.apply(JSON.stringify(value)));
  };
  for (const link of raw.links) describeLink(link, put);
  for (const { ifname, addr_info } of raw.addresses) {
    for (const info of addr_info as unknown as JsonObject[])
      describeAddress(String(ifname), info, put);
  }
  for (const route of raw.routes) describeRoute(route, put);
  for (const { ifname, vlans } of raw.vlans) {
    for (const { vlan, vlanEnd, flags } of vlans as unknown as JsonObject[])
      put(`vlan.${String(ifname)}.${String(vlan)}-${String(vlanEnd ?? vlan)}`, flags ?? []);
  }
  describeTraffic(raw, put);
  for (const line of raw.sysctls) {
    const [path = "", value] = line.split(":");
    put(`sysctl.${path}`, value);
  }
}

function describeTraffic(raw: Raw, put: Put): void {
  for (const { src, srclen, table, priority } of raw.rules)
    put(`rule.${String(src)}/${String(srclen ?? "")}.${String(table)}`, priority);
  // The kernel's own choices follow from the kind of link.
  for (const { kind, dev, options } of raw.qdiscs) {
    if (kind === "tbf" || kind === "ingress") put(`qdisc.${String(dev)}.${String(kind)}`, options);
  }
}

type Put = (path: string, value: unknown) => void;

function describeLink(link: JsonObject, put: Put): void {
  const path = `link.${String(link["ifname"])}`;
  for (const key of linkKeys) put(`${path}.${key}`, link[key]);
  // Whether a link has a carrier follows its ports' after a while.
  const flags = (link["flags"] ?? []) as unknown as string[];
  put(`${path}.flags`, flags.filter((flag) => !/^(NO-CARRIER|LOWER_UP)$/.test(flag)).toSorted());
  const info = (link["linkinfo"] ?? {}) as Record<string, JsonObject | undefined>;
  put(`${path}.kind`, info["info_kind"]);
  for (const key of infoKeys) put(`${path}.${key}`, info["info_data"]?.[key]);
  for (const key of portKeys) put(`${path}.port.${key}`, info["info_slave_data"]?.[key]);
}

/** Link-local addresses follow from generated hardware addresses. Whether duplicate address detection still goes on is a matter of the moment. */
function describeAddress(ifName: string, info: JsonObject, put: Put): void {
  if (info["local"] === undefined || String(info["local"]).startsWith("fe80:")) return;
  const path = `address.${ifName}.${String(info["local"])}/${String(info["prefixlen"])}`;
  const keys = "broadcast scope label peer nodad noprefixroute secondary".split(" ");
  put(path, pick(info, keys));
}

function describeRoute(route: JsonObject, put: Put): void {
  const destination = String(route["dst"]);
  const { table = "main", dev, gateway = "direct" } = route;
  // The kernel's own table follows from the addresses, once detection of duplicates is over.
  if (/^(fe80|ff00)::/.test(destination) || table === "local") return;
  const path = `route.${String(table)}.${destination}.${String(dev)}.${String(gateway)}`;
  const keys = "type protocol scope prefsrc metric metrics pref nexthops".split(" ");
  put(path, pick(route, keys));
}

function pick(from: JsonObject, keys: readonly string[]): JsonObject {
  return Object.fromEntries(
    keys.flatMap((key) => (from[key] === undefined ? [] : [[key, from[key]]])),
  );
}

function describeFolder(folder: string, out: Map<string, string>): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    out.set(`folder${path.slice(folder.length)}`, JSON.stringify(readFileSync(path, "latin1")));
  }
}

/** A result (or any JSON) as leaves. */
export function describeJson(value: unknown, path: string, sink: Sink): void {
  if (typeof value !== "object" || value === null) {
    sink.out.set(path, sink.names.apply(JSON.stringify(value) ?? "absent"));
    return;
  }
  for (const [key, inner] of Object.entries(value)) describeJson(inner, `${path}.${key}`, sink);
}
