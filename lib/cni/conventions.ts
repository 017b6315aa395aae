import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";

/** The keys of the capability arguments that CNI's CONVENTIONS.md defines. */
const keysOf: Readonly<Record<string, readonly string[]>> = {
  portMappings: ["hostPort", "containerPort", "protocol", "hostIP"],
  bandwidth: ["ingressRate", "ingressBurst", "egressRate", "egressBurst"],
  ipRanges: ["subnet", "rangeStart", "rangeEnd", "gateway"],
  dns: ["servers", "searches", "options"],
};

/**
 * Capability arguments with their keys spelt as CONVENTIONS.md does. Runtimes on go-cni (containerd, nerdctl, `ctr`) write the names of
 * Go fields instead ("HostPort"), which goes unseen where plugins are in Go too: its JSON decoder ignores case. Where an object has
 * both spellings the conventional one wins. Everything else stays as it is; safe to run twice.
 */
export function conventionalKeys(capabilityArgs: JsonObject): JsonObject {
  const entries = Object.entries(capabilityArgs).map(([name, value]) => {
    const keys = Object.hasOwn(keysOf, name) ? keysOf[name] : undefined;
    return [name, keys === undefined ? value : respell(value, keys)] as const;
  });
  return Object.fromEntries(entries);
}

function respell(value: Json | undefined, keys: readonly string[]): Json | undefined {
  if (Array.isArray(value)) return value.map((item) => respell(item, keys) ?? null);
  if (!isJsonObject(value)) return value;
  const entries = Object.entries(value).flatMap(([key, inner]) => {
    const conventional = keys.find((one) => one.toLowerCase() === key.toLowerCase());
    if (conventional === undefined || conventional === key) return [[key, inner] as const];
    return Object.hasOwn(value, conventional) ? [] : [[conventional, inner] as const];
  });
  return Object.fromEntries(entries);
}
