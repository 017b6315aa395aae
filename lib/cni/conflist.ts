import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import { CniError, cniCode } from "./errors.ts";
import { parseJsonObject } from "./json-text.ts";
import { isCniIdentifier, isPluginType } from "./names.ts";
import { type CniVersion, cniVersions, type PluginConfig } from "./types.ts";
import { chooseVersion, impliedCniVersion } from "./versions.ts";

/** A network configuration: a chain of at least one plugin (CNI 1.1.0, "Network configuration format"). */
export interface Conflist {
  readonly name: string;
  /** The newest version that both the configuration and podnet have. */
  readonly cniVersion: CniVersion;
  /** CHECK succeeds without calling the plugins. */
  readonly disableCheck: boolean;
  /** GC leaves this network alone. */
  readonly disableGC: boolean;
  /** In order; keys that podnet does not know are kept. */
  readonly plugins: readonly PluginConfig[];
  /**
   * The configuration as it was written, for DEL and CHECK to see what ADD saw. Where defaults or plugins from a directory were
   * added, the completed configuration as JSON: decoding `text` always gives the same list again.
   */
  readonly text: string;
}

/** A configuration whose chain may go on in a directory of its own (`loadOnlyInlinedPlugins` is not set). */
export interface OpenConflist extends Conflist {
  readonly loadOnlyInlinedPlugins: boolean;
}

/** What a configuration gets that does not say it itself (a PodNetwork's parameters have neither). */
export interface ConflistDefaults {
  readonly name?: string;
  readonly cniVersion?: CniVersion;
}

/** Lists that were decoded lately, oldest first. Every step of every operation reads its network's list, and a node has few. */
const known = new Map<string, Conflist>();
const mostKnown = 256;
const longestKnown = 16 * 1024;

/**
 * Decodes a network configuration: a list, or the single plugin object of older versions, which becomes a list of one. The same text and defaults may give
 * the same object again: nobody changes it.
 * Throws a CniError: code 6 (not a JSON object), 1 (no version in common), 7 with every fault for all else.
 */
export function decodeConflist(text: string, defaults: ConflistDefaults = {}): Conflist {
  const key = `${defaults.name ?? ""}\n${defaults.cniVersion ?? ""}\n${text}`;
  const list = known.get(key) ?? decodeAnew(text, defaults);
  if (text.length > longestKnown) return list;
  known.delete(key);
  known.set(key, list);
  const [oldest] = known.size > mostKnown ? known.keys() : [];
  if (oldest !== undefined) known.delete(oldest);
  return list;
}

function decodeAnew(text: string, defaults: ConflistDefaults): Conflist {
  const { loadOnlyInlinedPlugins: _, ...list } = decodeOpenConflist(text, defaults);
  return closed(list);
}

/** As `decodeConflist`, but a chain that is empty so far is fine unless `loadOnlyInlinedPlugins` is set. */
export function decodeOpenConflist(text: string, defaults: ConflistDefaults = {}): OpenConflist {
  const given = parseJsonObject(text, "network configuration");
  const config = withDefaults(given, defaults);
  const faults: string[] = [];
  const flag = (key: string) => decodeBoolean(config, key, faults);
  const list: OpenConflist = {
    name: decodeName(config["name"], faults),
    cniVersion: decodeVersions(config),
    disableCheck: flag("disableCheck"),
    disableGC: flag("disableGC"),
    // A single plugin object is a whole configuration: it has no directory.
    loadOnlyInlinedPlugins: flag("loadOnlyInlinedPlugins") || isSingle(config),
    plugins: decodePlugins(config, faults),
    text: config === given ? text : JSON.stringify(config),
  };
  refuse(faults);
  return list.loadOnlyInlinedPlugins ? { ...closed(list), loadOnlyInlinedPlugins: true } : list;
}

/**
 * Adds the plugins that the configuration's own directory holds. Throws a CniError (code 7) for an invalid one, and when there is
 * no plugin at all.
 */
export function closeConflist(open: OpenConflist, more: readonly Json[]): Conflist {
  const { loadOnlyInlinedPlugins, ...list } = open;
  if (loadOnlyInlinedPlugins || more.length === 0) return closed(list);
  const config = parseJsonObject(open.text, "network configuration");
  const inlined = config["plugins"];
  const plugins = Array.isArray(inlined) ? [...inlined, ...more] : more;
  const all: JsonObject = { ...config, plugins, loadOnlyInlinedPlugins: true };
  return decodeConflist(JSON.stringify(all));
}

function closed(list: Conflist): Conflist {
  if (list.plugins.length === 0) refuse(["plugins: there is none: list at least one plugin"]);
  return list;
}

function decodeName(name: Json | undefined, faults: string[]): string {
  if (name === undefined || name === "") faults.push("name: missing");
  else if (typeof name !== "string" || !isCniIdentifier(name)) {
    const rule = `must start with a letter or digit and contain only letters, digits, "_", "." and "-"`;
    faults.push(`name: ${JSON.stringify(name)} ${rule}`);
  } else return name;
  return "";
}

function withDefaults(config: JsonObject, { name, cniVersion }: ConflistDefaults): JsonObject {
  const addName = name !== undefined && isBlank(config["name"]);
  const addVersion = cniVersion !== undefined && offeredVersions(config).length === 0;
  if (!addName && !addVersion) return config;
  return { ...config, ...(addName ? { name } : {}), ...(addVersion ? { cniVersion } : {}) };
}

function offeredVersions(config: JsonObject): readonly Json[] {
  const list = config["cniVersions"] ?? [];
  const listed = Array.isArray(list) ? (list as readonly Json[]) : [list];
  return [config["cniVersion"] ?? "", ...listed].filter((item) => !isBlank(item));
}

function isBlank(value: Json | undefined): boolean {
  return value === undefined || value === null || value === "";
}

/** The newest of `cniVersion` and `cniVersions` that podnet has. */
function decodeVersions(config: JsonObject): CniVersion {
  const given = offeredVersions(config);
  if (given.length === 0) return impliedCniVersion;
  const chosen = chooseVersion(given.filter((item) => typeof item === "string"));
  if (chosen !== undefined) return chosen;
  const message = `network configuration: cniVersion: none of ${JSON.stringify(given)} is one of ${cniVersions.join(", ")}`;
  throw new CniError(cniCode.incompatibleVersion, message);
}

/** A boolean, or "true" or "false" as a text: both are in use. */
function decodeBoolean(config: JsonObject, key: string, faults: string[]): boolean {
  const value = config[key] ?? false;
  if (typeof value === "boolean") return value;
  const word = typeof value === "string" ? value.toLowerCase() : "";
  if (word !== "true" && word !== "false") {
    faults.push(`${key}: ${JSON.stringify(value)} must be true or false`);
  }
  return word === "true";
}

function isSingle(config: JsonObject): boolean {
  return isBlank(config["plugins"]) && config["type"] !== undefined;
}

/** A chain that is longer was not written by a person, and each plugin costs every step of its network. */
export const mostPlugins = 64;

function decodePlugins(config: JsonObject, faults: string[]): readonly PluginConfig[] {
  if (isSingle(config)) {
    const single = decodePlugin(config, "", faults);
    return single === undefined ? [] : [single];
  }
  const list = config["plugins"] ?? [];
  if (!Array.isArray(list)) {
    faults.push("plugins: must be a list");
    return [];
  }
  if (list.length > mostPlugins) {
    faults.push(`plugins: must have at most ${mostPlugins}, not ${list.length}`);
    return [];
  }
  return (list as readonly Json[])
    .map((item, index) => decodePlugin(item, `plugins[${index}]`, faults))
    .filter((plugin) => plugin !== undefined);
}

function decodePlugin(item: Json, path: string, faults: string[]): PluginConfig | undefined {
  const at = (key: string) => (path === "" ? key : `${path}.${key}`);
  if (!isJsonObject(item)) {
    faults.push(`${path}: must be an object`);
    return undefined;
  }
  const before = faults.length;
  checkType(item["type"], at("type"), faults);
  checkCapabilities(item["capabilities"], at("capabilities"), faults);
  checkIpam(item["ipam"], at("ipam"), faults);
  return faults.length === before && isChecked(item) ? item : undefined;
}

/** The three checks before it have looked at every key that PluginConfig types. */
function isChecked(item: JsonObject): item is PluginConfig {
  return typeof item["type"] === "string";
}

/** A type becomes a file name in a directory of CNI_PATH, so it must not lead out of it. */
function checkType(type: Json | undefined, path: string, faults: string[]): void {
  if (type === undefined || type === "") faults.push(`${path}: missing`);
  else if (typeof type !== "string" || !isPluginType(type)) {
    faults.push(`${path}: ${JSON.stringify(type)} must be the name of a plugin, without a path`);
  }
}

function checkCapabilities(value: Json | undefined, path: string, faults: string[]): void {
  if (value === undefined || value === null) return;
  if (!isJsonObject(value)) {
    faults.push(`${path}: must be an object of booleans`);
    return;
  }
  for (const [name, flag] of Object.entries(value)) {
    if (typeof flag !== "boolean") faults.push(`${path}.${name}: must be true or false`);
  }
}

function checkIpam(value: Json | undefined, path: string, faults: string[]): void {
  if (value === undefined || value === null) return;
  if (!isJsonObject(value)) {
    faults.push(`${path}: must be an object`);
    return;
  }
  const type = value["type"];
  if (type !== undefined && type !== "") checkType(type, `${path}.type`, faults);
}

function refuse(faults: readonly string[]): void {
  if (faults.length === 0) return;
  const message = `network configuration: ${faults.join("; ")}`;
  throw new CniError(cniCode.invalidNetworkConfig, message, { faults });
}
