import type { Fault } from "../base/decode.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import { quote } from "./names.ts";

/** What the node permits in NADs, which tenants may write. Patterns: `*` stands for any letters. */
export interface NadRules {
  /** Types of plugins, address management included. */
  readonly nadTypes: readonly string[];
  /** Interfaces of the node that they may name (`master`, `bridge`, `link`). */
  readonly nadDevices: readonly string[];
  /** Folders in which paths may lie. */
  readonly nadPaths: readonly string[];
  /** Sysctls that they may set in the pod. */
  readonly nadSysctls: readonly string[];
}

/** Keys that take a device out of the node. */
const takesDevice = new Set(["device", "hwaddr", "kernelpath", "pciBusID", "deviceID"]);
/** Keys that name an interface of the node, which stays there. */
const namesDevice = new Set(["master", "bridge", "link", "vrfname"]);
/** Keys that hold sysctls by name. */
const sysctls = new Set(["sysctl", "sysctls"]);

/** Faults that are told: tenants write NADs, and whoever has more has done it on purpose. */
const mostFaults = 100;

/** The rules, and how many more faults are looked for. */
type Search = NadRules & { readonly budget: { left: number } };

/**
 * What the plugins of a NAD must not have: types that are not listed, devices, paths and sysctls beyond the rules. A path is any
 * text that starts with "/" and any that climbs (".."). A hundred faults at most.
 */
export function nadFaults(plugins: readonly JsonObject[], rules: NadRules): Fault[] {
  // What a plugin declares is no value: the runtime and podnet decide what it gets.
  const search = { ...rules, budget: { left: mostFaults } };
  return plugins
    .flatMap(({ capabilities: _, ...plugin }, index) =>
      objectFaults(plugin, `plugins[${index}]`, search),
    )
    .slice(0, mostFaults);
}

function objectFaults(object: JsonObject, path: string, rules: Search): Fault[] {
  return Object.entries(object).flatMap(([key, value]) => {
    if (rules.budget.left <= 0) return [];
    const at = `${path}.${key}`;
    return [...keyFaults(key, value, { at, rules }), ...valueFaults(value, at, rules)];
  });
}

interface Place {
  readonly at: string;
  readonly rules: Search;
}

function keyFaults(key: string, value: unknown, { at, rules }: Place): Fault[] {
  if (value === undefined || value === "") return [];
  const refuse = (message: string): Fault[] => {
    rules.budget.left--;
    return [{ path: at, message }];
  };
  if (key === "type" && !listed(rules.nadTypes, value)) {
    return refuse(`type ${shown(value)} is not permitted in a NAD: see nadTypes of the node`);
  }
  if (takesDevice.has(key)) {
    return refuse("takes a device of the node, which a NAD must not: use a PodNetwork");
  }
  if (namesDevice.has(key) && !listed(rules.nadDevices, value)) {
    return refuse(`device ${shown(value)} is not permitted in a NAD: see nadDevices of the node`);
  }
  if (!sysctls.has(key)) return [];
  const names = isJsonObject(value) ? Object.keys(value) : [];
  return names
    .filter((name) => !listed(rules.nadSysctls, name.replaceAll("/", ".")))
    .flatMap((name) => refuse(`sysctl ${quote(name)} is not permitted in a NAD: see nadSysctls`));
}

function valueFaults(value: unknown, path: string, rules: Search): Fault[] {
  if (rules.budget.left <= 0) return [];
  if (typeof value === "string") return pathFaults(value, path, rules);
  if (Array.isArray(value)) {
    return (value as readonly unknown[]).flatMap((item, index) =>
      isJsonObject(item)
        ? objectFaults(item, `${path}[${index}]`, rules)
        : valueFaults(item, `${path}[${index}]`, rules),
    );
  }
  return isJsonObject(value) ? objectFaults(value, path, rules) : [];
}

function pathFaults(value: string, path: string, { nadPaths, budget }: Search): Fault[] {
  if (!value.startsWith("/") && !/(^|\/)\.\.(\/|$)/.test(value)) return [];
  const climbs = /(^|\/)\.\.(\/|$)/.test(value);
  const inside = nadPaths.some((folder) => value === folder || value.startsWith(`${folder}/`));
  if (!climbs && inside) return [];
  budget.left--;
  return [
    { path, message: `path ${quote(value)} is not permitted in a NAD: see nadPaths of the node` },
  ];
}

function listed(patterns: readonly string[], value: unknown): boolean {
  if (typeof value !== "string") return false;
  return patterns.some((pattern) => matches(pattern, value));
}

/** `br-*` matches `br-blue`. Linear: each piece between stars is looked for once, from left to right. */
function matches(pattern: string, value: string): boolean {
  const pieces = pattern.split("*");
  const [first = "", ...rest] = pieces;
  if (rest.length === 0) return value === pattern;
  const last = rest.pop() ?? "";
  if (!value.startsWith(first)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = value.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return value.length - last.length >= at && value.endsWith(last);
}

function shown(value: unknown): string {
  return quote(typeof value === "string" ? value : JSON.stringify(value));
}
