import { z } from "zod";
import { decode } from "../../../lib/base/decode.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type Json, type JsonObject } from "../../../lib/base/json.ts";
import { type Conflist, decodeConflist } from "../../../lib/cni/conflist.ts";
import type { CniVersion } from "../../../lib/cni/types.ts";

/**
 * What Multus remembers of a sandbox, in a file named after the container: a JSON list with an entry for each delegate, in the order of
 * attaching. An entry has the delegate's configuration as base64 (`Bytes`, Go's form of a byte slice) and decoded (`Conf`, `ConfList`, which
 * lack the plugins' own keys); releases before 3.0 wrote the configuration itself. Multus writes the file before it calls the first delegate and
 * not in one step, so a process that is killed or a full disk leaves a part of it.
 */
export interface MultusDelegate {
  /** As Multus' status shows it: `namespace/name` of a NAD, or the configuration's name. */
  readonly network: string;
  readonly ifName: string;
  readonly conflist: Conflist;
  /** What the pod's selection asked for. Host ports and bandwidth are not in the file. */
  readonly capabilityArgs: JsonObject;
}

export interface MultusCache {
  readonly delegates: readonly MultusDelegate[];
  /** What could not be read, in words; empty when the file is sound. */
  readonly faults: readonly string[];
}

/** What the file leaves to whoever calls DEL. */
export interface MultusDefaults {
  /** CNI_IFNAME, the first delegate's interface. */
  readonly ifName: string;
  /** For configurations that have none. */
  readonly cniVersion: CniVersion;
}

const text = z.string().nullish();
const entrySchema = z.looseObject({
  Name: text,
  Bytes: text,
  ifnameRequest: text,
  macRequest: text,
  infinibandGUIDRequest: text,
  ipRequest: z.array(z.string()).nullish(),
  deviceID: text,
  masterplugin: z.boolean().nullish(),
});
type Entry = z.infer<typeof entrySchema>;

/** Decodes the file's text as far as it is whole. Never throws. */
export function decodeMultusCache(content: string, defaults: MultusDefaults): MultusCache {
  const faults: string[] = [];
  const delegates: MultusDelegate[] = [];
  for (const [index, value] of entriesOf(content, faults).entries()) {
    try {
      const entry = decode(entrySchema, value, "delegate");
      delegates.push(delegateOf(entry, index, defaults));
    } catch (error) {
      faults.push(`entry ${index}: ${errorText(error)}`);
    }
  }
  return { delegates, faults };
}

function entriesOf(content: string, faults: string[]): readonly unknown[] {
  try {
    const value: unknown = JSON.parse(content);
    if (Array.isArray(value)) return value as readonly unknown[];
    if (value === null) return [];
    faults.push("it is no list");
    return [];
  } catch (error) {
    faults.push(errorText(error));
    return wholeObjects(content);
  }
}

/** The objects of a list that was cut off: those that are there from brace to brace. */
function wholeObjects(content: string): readonly unknown[] {
  const found: unknown[] = [];
  let depth = 0;
  let start = 0;
  for (const { token, at } of braces(content)) {
    if (token === "{" && depth === 0) start = at;
    depth += token === "{" ? 1 : -1;
    if (depth > 0) continue;
    const value = parsed(content.slice(start, at + 1));
    if (value === undefined) break;
    found.push(value);
  }
  return found;
}

/** Braces outside of strings, up to a string that does not end. */
function* braces(content: string): Generator<{ readonly token: string; readonly at: number }> {
  for (const { 0: token, index } of content.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}]|"/gs)) {
    if (token === '"') return;
    if (token === "{" || token === "}") yield { token, at: index };
  }
}

function parsed(piece: string): unknown {
  try {
    return JSON.parse(piece) as unknown;
  } catch {
    return undefined;
  }
}

function delegateOf(entry: Entry, index: number, defaults: MultusDefaults): MultusDelegate {
  const given = entry.Name ?? "";
  const name = given.slice(given.lastIndexOf("/") + 1);
  const conflist = decodeForeign(configText(entry), { ...defaults, name });
  const first = index === 0 || entry.masterplugin === true;
  const own = first ? defaults.ifName : `net${index}`;
  return {
    network: given === "" ? conflist.name : given,
    ifName: entry.ifnameRequest || own,
    conflist,
    capabilityArgs: requestsOf(entry),
  };
}

function requestsOf(entry: Entry): JsonObject {
  const { macRequest, infinibandGUIDRequest, ipRequest, deviceID } = entry;
  return {
    ...(macRequest ? { mac: macRequest } : {}),
    ...(infinibandGUIDRequest ? { infinibandGUID: infinibandGUIDRequest } : {}),
    ...(ipRequest?.length ? { ips: ipRequest } : {}),
    ...(deviceID ? { deviceID } : {}),
  };
}

/** The configuration that the delegate was called with, else the best that there is of it. */
function configText(entry: Entry): string {
  if (entry.Bytes) return Buffer.from(entry.Bytes, "base64").toString("utf8");
  const candidates = [entry["ConfList"], entry["Conf"], entry];
  const usable = candidates.find(
    (value) => isJsonObject(value) && (hasPlugins(value["plugins"]) || Boolean(value["type"])),
  );
  if (usable === undefined) throw new Error("it has no configuration");
  return JSON.stringify(usable);
}

function hasPlugins(value: Json | undefined): boolean {
  return Array.isArray(value) && value.length > 0;
}

/**
 * Decodes a configuration that somebody else ran: a version that podnet does not speak is no reason not to give back what was attached.
 * Throws a CniError for one that can't be run at all.
 */
export function decodeForeign(
  config: string,
  { name, cniVersion }: { readonly name: string; readonly cniVersion: CniVersion },
): Conflist {
  const defaults = { ...(name === "" ? {} : { name }), cniVersion };
  try {
    return decodeConflist(config, defaults);
  } catch (error) {
    const value: unknown = JSON.parse(config);
    if (!isJsonObject(value)) throw error;
    const { cniVersion: _, cniVersions: __, ...rest } = value;
    return decodeConflist(JSON.stringify(rest), defaults);
  }
}
