import fc from "fast-check";
import type { JsonObject } from "../../lib/base/json.ts";

/**
 * Plugin configurations as users write them, and as they should not: most are made of the keys that a type has with good values, some of these get one
 * value replaced, and a few are any JSON at all.
 */

/** What one attempt is made with. */
export interface Attempt {
  readonly type: FuzzedType;
  /** What stands where a plugin's configuration should be. */
  readonly config: unknown;
  readonly runtimeConfig: JsonObject;
  /** DEL without the result of ADD and without the pod. */
  readonly forgetful: boolean;
}

export const madeTypes = ["bridge", "macvlan", "ptp", "tap", "loopback"] as const;
export const chainedTypes = ["tuning", "portmap", "bandwidth", "sbr"] as const;
export type FuzzedType = (typeof madeTypes)[number] | (typeof chainedTypes)[number];

/** The folder of host-local's files stands in a configuration under this name: no attempt writes elsewhere. */
export const dataDir = "DATA";

const flag = fc.boolean();
const mac = fc.constantFrom("0a:00:00:00:00:05", "0A-00-00-00-00-06", "0a00.0000.0007", "");
const mtu = fc.constantFrom(1500, 1400, 1280, 0);
const backend = fc.constantFrom("iptables", "nftables");

/** Each key is there or not. */
function some(keys: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<JsonObject> {
  return fc.record(keys, { requiredKeys: [], noNullPrototype: true }) as fc.Arbitrary<JsonObject>;
}

const routes = fc.subarray<JsonObject>([
  { dst: "10.8.0.0/16" },
  { dst: "10.9.0.0/16", gw: "10.1.0.9", priority: 77 },
  { dst: "10.10.0.0/16", gw: "10.1.0.9", table: 100, mtu: 1300 },
]);
const v4 = [{ subnet: "10.1.0.0/24" }];
const ranges = fc.constantFrom<unknown>(
  [v4],
  [v4, [{ subnet: "fd00:1::/64" }]],
  [
    [
      {
        subnet: "10.1.0.0/24",
        rangeStart: "10.1.0.20",
        rangeEnd: "10.1.0.30",
        gateway: "10.1.0.7",
      },
    ],
  ],
);
const addresses = fc.constantFrom(
  [{ address: "10.1.0.5/24", gateway: "10.1.0.1" }],
  [
    { address: "10.1.0.5/24", gateway: "10.1.0.1" },
    { address: "fd00:1::5/64", gateway: "fd00:1::1" },
  ],
);
const ipam = fc.oneof(
  fc.record({ type: fc.constant("host-local"), dataDir: fc.constant(dataDir), ranges, routes }),
  fc.record({ type: fc.constant("static"), addresses, routes }),
) as fc.Arbitrary<JsonObject>;
const withIpam = { ipam };
const dns = some({ nameservers: fc.constant(["9.9.9.9"]), domain: fc.constant("d") });
const args = some({ cni: some({ mac }) });

const rate = fc.constantFrom(8_000, 1_000_000, 10_000_000_000);
const limits = fc
  .constantFrom("ingress", "egress")
  .chain((way) =>
    fc.record({ [`${way}Rate`]: rate, [`${way}Burst`]: rate }, { noNullPrototype: true }),
  ) as fc.Arbitrary<JsonObject>;

const sysctls = some({
  "net.ipv4.conf.IFNAME.arp_filter": fc.constantFrom("0", "1"),
  "net/core/somaxconn": fc.constantFrom("200", "4096"),
  "net.ipv4.ip_unprivileged_port_start": fc.constant("80"),
});
const mapping = fc.record(
  {
    hostPort: fc.integer({ min: 1, max: 65_535 }),
    containerPort: fc.integer({ min: 1, max: 65_535 }),
    protocol: fc.constantFrom("tcp", "udp", "sctp", "TCP"),
    hostIP: fc.constantFrom("", "192.0.2.1", "0.0.0.0", "2001:db8::1", "127.0.0.1"),
  },
  { requiredKeys: ["hostPort", "containerPort", "protocol"], noNullPrototype: true },
);
const condition = fc.constantFrom(["ip", "saddr", "192.0.2.0/24"], ["!", "-s", "192.0.2.0/25"], []);

interface Keys {
  /** Always there. */
  readonly needed?: Readonly<Record<string, fc.Arbitrary<unknown>>>;
  readonly some: Readonly<Record<string, fc.Arbitrary<unknown>>>;
  readonly runtime?: Readonly<Record<string, fc.Arbitrary<unknown>>>;
}

const keysOf: Readonly<Record<FuzzedType, Keys>> = {
  bridge: {
    needed: withIpam,
    some: {
      bridge: fc.constantFrom("br0", "br1", ""),
      isGateway: flag,
      isDefaultGateway: flag,
      forceAddress: flag,
      ipMasq: flag,
      ipMasqBackend: backend,
      mtu,
      hairpinMode: flag,
      preserveDefaultVlan: flag,
      macspoofchk: flag,
      enabledad: flag,
      portIsolation: flag,
      dns,
      args,
    },
    runtime: { mac },
  },
  macvlan: {
    needed: { ipam: fc.oneof(ipam, fc.constant({})) },
    some: {
      master: fc.constantFrom("up0", ""),
      mode: fc.constantFrom("bridge", "private", "vepa", "passthru", ""),
      mtu,
      mac,
      linkInContainer: fc.constant(false),
      bcqueuelen: fc.constantFrom(0, 1000),
      dns,
    },
    runtime: { mac },
  },
  ptp: { needed: withIpam, some: { ipMasq: flag, ipMasqBackend: backend, mtu, dns } },
  tap: {
    some: {
      ipam,
      multiQueue: flag,
      mtu,
      mac,
      owner: fc.constantFrom(0, 1000),
      group: fc.constantFrom(0, 1000),
      bridge: fc.constant(""),
    },
    runtime: { mac },
  },
  loopback: { some: { dns, ipam: fc.constant({}) } },
  tuning: {
    some: {
      sysctl: sysctls,
      mac: fc.constantFrom("0a:00:00:00:00:05", ""),
      promisc: flag,
      mtu,
      txQLen: fc.constantFrom(0, 500),
      allmulti: flag,
      dataDir: fc.constant(dataDir),
    },
    runtime: { mac: fc.constantFrom("0a:00:00:00:00:08", "") },
  },
  portmap: {
    some: {
      snat: flag,
      masqAll: flag,
      backend: fc.constant("nftables"),
      conditionsV4: condition,
      conditionsV6: fc.constant([]),
    },
    runtime: {
      portMappings: fc.uniqueArray(mapping, { maxLength: 3, selector: (one) => one.hostPort }),
    },
  },
  bandwidth: { some: {}, runtime: { bandwidth: limits } },
  sbr: { some: { table: fc.constantFrom(100, 5000) } },
};

type Parts = Pick<Attempt, "type" | "runtimeConfig"> & { readonly config: JsonObject };

function good(type: FuzzedType): fc.Arbitrary<Parts> {
  const keys = keysOf[type];
  const needed = fc.record(keys.needed ?? {}, { noNullPrototype: true });
  const inline = type === "bandwidth" ? fc.oneof(limits, fc.constant({})) : fc.constant({});
  return fc
    .tuple(needed, some(keys.some), inline, some(keys.runtime ?? {}))
    .map(([always, maybe, more, runtimeConfig]) => ({
      type,
      config: { type, ...always, ...maybe, ...more } as JsonObject,
      runtimeConfig,
    }));
}

/** What should not be there. Texts stay short and without a slash at the front: some keys name files. */
const wrong = fc.oneof(
  fc.constantFrom<unknown>(null, true, -1, 0, 1.5, 1e99, 2 ** 32, "", "x", "lo", [], {}, [null]),
  fc.constantFrom(
    "0a:00:00:00:00",
    "999.1.1.1/99",
    "10.1.0.5",
    "fd00::/200",
    "../..",
    "é\0",
    "net",
  ),
  fc.string({ maxLength: 20 }).filter((text) => !text.startsWith("/")),
  fc.jsonValue({ maxDepth: 2 }),
);

type Path = readonly (string | number)[];

/** The places of a value whose change stays within the test: not the type, and nothing that holds the folder of files. */
function places(value: unknown, path: Path = []): Path[] {
  if (value === dataDir) return [];
  if (typeof value !== "object" || value === null) return path.length === 0 ? [] : [path];
  const inner = Object.entries(value)
    .filter(([key]) => path.length > 0 || key !== "type")
    .flatMap(([key, one]) => places(one, [...path, Array.isArray(value) ? Number(key) : key]));
  return path.length === 0 || JSON.stringify(value).includes(dataDir) ? inner : [path, ...inner];
}

function replaced(value: unknown, [key, ...rest]: Path, by: unknown): unknown {
  if (key === undefined) return by;
  if (Array.isArray(value))
    return value.map((one: unknown, index) => (index === key ? replaced(one, rest, by) : one));
  const object = value as JsonObject;
  return { ...object, [key]: replaced(object[String(key)], rest, by) };
}

function damaged(parts: fc.Arbitrary<Parts>): fc.Arbitrary<Parts> {
  return fc.tuple(parts, fc.nat(), wrong).map(([{ type, ...whole }, at, value]) => {
    const found = [
      ...places(whole.config, []).map((path) => ["config", ...path]),
      ...places(whole.runtimeConfig).map((path) => ["runtimeConfig", ...path]),
    ];
    const path = found[at % Math.max(1, found.length)];
    const changed = path === undefined ? whole : (replaced(whole, path, value) as typeof whole);
    return { type, ...changed };
  });
}

/** Known keys with any values, or no object at all. */
function junk(type: FuzzedType): fc.Arbitrary<Pick<Attempt, "type" | "config" | "runtimeConfig">> {
  const keys = { ...keysOf[type].needed, ...keysOf[type].some };
  const names = Object.keys(keys).filter((key) => key !== "dataDir");
  const any = some(Object.fromEntries(names.map((key) => [key, wrong])));
  const config = fc.oneof(
    any.map((object) => ({ ...object, type })),
    fc.jsonValue({ maxDepth: 2 }),
  );
  return config.map((value) => ({ type, config: value, runtimeConfig: {} }));
}

/** Plain attempts first: what fails shrinks towards them. */
export const attempts: fc.Arbitrary<Attempt> = fc
  .tuple(fc.constantFrom<FuzzedType>(...madeTypes, ...chainedTypes), fc.boolean())
  .chain(([type, forgetful]) =>
    fc
      .oneof(
        { arbitrary: good(type), weight: 14 },
        { arbitrary: damaged(good(type)), weight: 5 },
        { arbitrary: junk(type), weight: 1 },
      )
      .map((parts): Attempt => ({ ...parts, forgetful })),
  );
