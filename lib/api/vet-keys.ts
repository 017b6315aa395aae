import type { Fault } from "../base/decode.ts";
import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import { quote } from "./names.ts";
import { unknownKeyText } from "./nearest.ts";

/** What a key's value must be. */
type Kind = "boolean" | "integer" | "string" | "object" | "list" | "any";
type Keys = Readonly<Record<string, Kind>>;

function keys(kinds: Partial<Record<Kind, string>>): Keys {
  const entries = Object.entries(kinds).flatMap(([kind, names]) =>
    names.split(" ").map((name) => [name, kind as Kind]),
  );
  return Object.fromEntries(entries) as Keys;
}

const common = keys({
  any: "cniVersion name type prevResult runtimeConfig capabilities dns",
  object: "ipam args",
});

/** Keys of the types that podnet has in process, as the reference plugins (1.9.1) and sriov-cni (2.10) name them. */
const pluginKeys: ReadonlyMap<string, Keys> = new Map([
  ["bandwidth", keys({ integer: "ingressRate ingressBurst egressRate egressBurst" })],
  [
    "bridge",
    keys({
      string: "bridge ipMasqBackend",
      integer: "mtu vlan",
      list: "vlanTrunk",
      boolean:
        "isGateway isDefaultGateway forceAddress ipMasq hairpinMode promiscMode preserveDefaultVlan macspoofchk enabledad disableContainerInterface portIsolation",
    }),
  ],
  ["dummy", {}],
  ["host-device", keys({ string: "device hwaddr kernelpath pciBusID deviceID" })],
  ["ipvlan", keys({ string: "master mode", integer: "mtu", boolean: "linkInContainer" })],
  ["loopback", {}],
  [
    "macvlan",
    keys({ string: "master mode mac", integer: "mtu bcqueuelen", boolean: "linkInContainer" }),
  ],
  [
    "portmap",
    keys({
      string: "backend externalSetMarkChain",
      boolean: "snat masqAll",
      integer: "markMasqBit",
      list: "conditionsV4 conditionsV6",
    }),
  ],
  ["ptp", keys({ boolean: "ipMasq", string: "ipMasqBackend", integer: "mtu" })],
  ["sbr", keys({ integer: "table", list: "gateways", boolean: "addSourceHints" })],
  [
    "sriov",
    keys({
      string: "deviceID mac vlanProto spoofchk trust link_state logLevel logFile",
      integer: "mtu vlan vlanQoS min_tx_rate max_tx_rate",
    }),
  ],
  [
    "tap",
    keys({
      boolean: "multiQueue",
      integer: "mtu owner group",
      string: "mac selinuxContext bridge",
    }),
  ],
  [
    "tuning",
    keys({
      string: "dataDir mac",
      object: "sysctl",
      boolean: "promisc allmulti",
      integer: "mtu txQLen",
    }),
  ],
  ["vlan", keys({ string: "master", integer: "vlanId mtu", boolean: "linkInContainer" })],
  ["vrf", keys({ string: "vrfname", integer: "table" })],
]);

/** Keys of the address management that podnet knows. */
const ipamKeys: ReadonlyMap<string, Keys> = new Map([
  [
    "host-local",
    keys({
      any: "type",
      list: "ranges routes",
      string: "subnet rangeStart rangeEnd gateway dataDir resolvConf",
    }),
  ],
  ["static", keys({ any: "type", list: "addresses routes", object: "dns" })],
  [
    "dhcp",
    keys({ any: "type", string: "daemonSocketPath", list: "provide request", integer: "priority" }),
  ],
]);

/** Whether podnet has the type in process; any other is an executable of the nodes. */
export function isOwnType(type: string): boolean {
  return pluginKeys.has(type);
}

/** Whether podnet knows what `ipam.type` does. */
export function isKnownIpam(type: string): boolean {
  return ipamKeys.has(type);
}

/** Faults: values of the wrong kind. Warnings: keys that nobody reads, and types that podnet does not know. */
export interface Vetted {
  readonly faults: readonly Fault[];
  readonly warnings: readonly Fault[];
}

/** Looks at the keys of one plugin configuration and of its `ipam`, by their names and kinds. */
export function vetKeys(plugin: JsonObject, path: string): Vetted {
  const { type, ipam } = plugin;
  const own = typeof type === "string" ? pluginKeys.get(type) : undefined;
  const of =
    own === undefined
      ? foreign(type, `${path}.type`)
      : vetObject(plugin, { ...common, ...own }, path);
  if (!isJsonObject(ipam) || isUnset(ipam["type"])) return of;
  const known = typeof ipam["type"] === "string" ? ipamKeys.get(ipam["type"]) : undefined;
  const at = `${path}.ipam`;
  const inside =
    known === undefined ? foreign(ipam["type"], `${at}.type`) : vetObject(ipam, known, at);
  return {
    faults: [...of.faults, ...inside.faults],
    warnings: [...of.warnings, ...inside.warnings],
  };
}

function foreign(type: Json | undefined, path: string): Vetted {
  if (typeof type !== "string")
    return { faults: [{ path, message: "must be a name" }], warnings: [] };
  const message = `${quote(type)} is no type of podnet's own: every node needs an executable of that name`;
  return { faults: [], warnings: [{ path, message }] };
}

function vetObject(object: JsonObject, known: Keys, path: string): Vetted {
  const faults: Fault[] = [];
  const warnings: Fault[] = [];
  for (const [key, value] of Object.entries(object)) {
    const kind = Object.hasOwn(known, key) ? known[key] : undefined;
    if (kind === undefined) {
      warnings.push({ path, message: unknownKeyText(key, Object.keys(known)) });
    } else if (!isUnset(value) && !isOfKind(value, kind)) {
      faults.push({ path: `${path}.${key}`, message: `must be ${words[kind]}` });
    }
  }
  return { faults, warnings };
}

const words: Readonly<Record<Kind, string>> = {
  boolean: "true or false",
  integer: "a whole number",
  string: "a string",
  object: "an object",
  list: "a list",
  any: "there",
};

/** Go's decoder takes null for absent. */
function isUnset(value: Json | undefined): boolean {
  return value === undefined || value === null || value === "";
}

function isOfKind(value: Json | undefined, kind: Kind): boolean {
  if (kind === "any") return true;
  if (kind === "object") return isJsonObject(value);
  if (kind === "list") return Array.isArray(value);
  if (kind === "integer") return Number.isInteger(value);
  return typeof value === kind;
}
