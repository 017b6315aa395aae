import type { z } from "zod";
import { type Fault, formatPath } from "../base/decode.ts";
import { issueText } from "../base/decode-texts.ts";
import { parseIp } from "../base/ip.ts";
import { isJsonObject } from "../base/json.ts";
import { unknownKeyText } from "./nearest.ts";
import type { DefaultRouteWish, NetworkRef, PortMapping, Selection } from "./selection.ts";
import { npwgEntry, type PodnetEntry, podnetEntry, type Wishes } from "./selection-schema.ts";

/** Where an entry stands, and where its faults go. */
export interface EntryPlace {
  readonly index: number;
  readonly faults: Fault[];
}

type Report = (field: string, message: string) => void;

/** Reads one entry of podnet's dialect; undefined when it has faults, which go to `place.faults`. */
export function readPodnetEntry(
  value: unknown,
  namespace: string,
  place: EntryPlace,
): Selection | undefined {
  const before = place.faults.length;
  const entry = decodeEntry(podnetEntry, value, place);
  refuseUnknownKeys(value, place);
  const report = reporter(place);
  if (entry === undefined) {
    reportNames(value, report);
    return undefined;
  }
  const ref = podnetRef(entry, namespace, report);
  const defaultRoute = podnetDefaultRoute(entry, report);
  const selection = ref && {
    index: place.index,
    ref,
    ...(entry.interfaceName === undefined ? {} : { ifName: entry.interfaceName }),
    ...readWishes(entry, report),
    ...(defaultRoute === undefined ? {} : { defaultRoute }),
  };
  return place.faults.length === before ? selection : undefined;
}

/** Reads one entry of the standard's JSON form; undefined when it has faults, which go to `place.faults`. */
export function readNpwgEntry(
  value: unknown,
  namespace: string,
  place: EntryPlace,
): Selection | undefined {
  const before = place.faults.length;
  const entry = decodeEntry(npwgEntry, value, place);
  if (entry === undefined) return undefined;
  const report = reporter(place);
  const ifName = oneOf(entry, ["interface", "interfaceRequest"], report);
  const defaultRoute = npwgDefaultRoute(entry["default-route"], report);
  const selection: Selection = {
    index: place.index,
    ref: { kind: "nad", namespace: entry.namespace ?? namespace, name: entry.name },
    ...(ifName === undefined ? {} : { ifName }),
    ...readWishes(entry, report),
    ...(defaultRoute === undefined ? {} : { defaultRoute }),
  };
  return place.faults.length === before ? selection : undefined;
}

function reporter(place: EntryPlace): Report {
  return (field, message) => {
    place.faults.push({ path: `[${place.index}]${field === "" ? "" : `.${field}`}`, message });
  };
}

function decodeEntry<T extends z.ZodType>(
  schema: T,
  value: unknown,
  place: EntryPlace,
): z.output<T> | undefined {
  const outcome = schema.safeParse(withoutNulls(value), { error: issueText });
  if (outcome.success) return outcome.data;
  for (const issue of outcome.error.issues) {
    const missing = issue.path.length === 1 && !hasKey(value, issue.path[0]);
    place.faults.push({
      path: formatPath([place.index, ...issue.path]),
      message: missing ? "missing" : issue.message,
    });
  }
  return undefined;
}

function hasKey(value: unknown, key: PropertyKey | undefined): boolean {
  return isJsonObject(value) && key !== undefined && Object.hasOwn(value, key);
}

/** A key whose value is null is one that is not there: the standard's own Go types read it so. */
function withoutNulls(value: unknown): unknown {
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== null));
}

/**
 * In podnet's own dialect a key that nobody knows is a spelling mistake, and the pod would run without what it asked for. Keys
 * with a dot are private ones of other programs (NPWG 1.3, section 4.1.2) and are left alone.
 */
function refuseUnknownKeys(value: unknown, place: EntryPlace): void {
  if (!isJsonObject(value)) return;
  const known = Object.keys(podnetEntry.shape);
  for (const key of Object.keys(value)) {
    if (known.includes(key) || key.includes(".")) continue;
    place.faults.push({ path: `[${place.index}]`, message: unknownKeyText(key, known) });
  }
}

/** The value of the one key of several that is there; reports when there are more. */
function oneOf<T extends object, K extends keyof T & string>(
  entry: T,
  keys: readonly K[],
  report: Report,
): T[K] | undefined {
  const given = keys.filter((key) => entry[key] !== undefined);
  const [first, ...others] = given;
  if (others.length > 0) report("", `${given.join(" and ")} mean the same: give one of them`);
  return first === undefined ? undefined : entry[first];
}

const networkKeys = ["name", "podNetworkName", "podNetwork"] as const;
const attachmentKeys = ["attachmentName", "podNetworkAttachmentName"] as const;
const bothNames = "has both name and attachmentName: give one of them";
const neitherName = "has neither name nor attachmentName: give one of them";

/** How an entry names its network, where it has other faults: those are not all that its author must hear of. */
function reportNames(value: unknown, report: Report): void {
  if (!isJsonObject(value)) return;
  const has = (keys: readonly string[]) => keys.some((key) => (value[key] ?? null) !== null);
  if (has(networkKeys) && has(attachmentKeys)) report("", bothNames);
  if (!has(networkKeys) && !has(attachmentKeys)) report("", neitherName);
}

function podnetRef(entry: PodnetEntry, namespace: string, report: Report): NetworkRef | undefined {
  const name = oneOf(entry, networkKeys, report);
  const attachment = oneOf(entry, attachmentKeys, report);
  if (name !== undefined && attachment !== undefined) {
    report("", bothNames);
    return undefined;
  }
  if (name !== undefined) return { kind: "podNetwork", name };
  if (attachment !== undefined) {
    return { kind: "podNetworkAttachment", namespace, name: attachment };
  }
  report("", neitherName);
  return undefined;
}

function podnetDefaultRoute(entry: PodnetEntry, report: Report): DefaultRouteWish | undefined {
  const both = entry.isDefaultGW === true || entry.primary === true;
  const single4 = entry.isDefaultGW4 === true;
  const single6 = entry.isDefaultGW6 === true;
  const named = npwgDefaultRoute(entry["default-route"], report);
  if (!both && !single4 && !single6) return named;
  return {
    ...named,
    v4: both || single4 || named?.v4 === true,
    v6: both || single6 || named?.v6 === true,
    strict: single4 || single6 || named?.strict === true,
  };
}

/** An empty list means the network's own gateways, for the families that it has (spec B.2.2). */
function npwgDefaultRoute(
  gateways: readonly string[] | undefined,
  report: Report,
): DefaultRouteWish | undefined {
  if (gateways === undefined) return undefined;
  if (gateways.length === 0) return { v4: true, v6: true, strict: false };
  const v4 = gateways.filter((gateway) => parseIp(gateway).family === 4);
  const v6 = gateways.filter((gateway) => parseIp(gateway).family === 6);
  if (v4.length > 1 || v6.length > 1) {
    report("default-route", "must have at most one gateway for each family");
  }
  return {
    v4: v4.length > 0,
    v6: v6.length > 0,
    ...(v4[0] === undefined ? {} : { gateway4: v4[0] }),
    ...(v6[0] === undefined ? {} : { gateway6: v6[0] }),
    strict: true,
  };
}

/** What an entry asks of its network, under podnet's names. */
function readWishes(entry: Wishes, report: Report): Omit<Selection, "index" | "ref"> {
  if (entry.ips !== undefined && entry["ipam-claim-reference"] !== undefined) {
    report("ipam-claim-reference", "can't be combined with ips");
  }
  const wishes = {
    ips: entry.ips,
    mac: entry.mac,
    infinibandGuid: entry["infiniband-guid"],
    portMappings: entry.portMappings?.map((mapping) => defined<PortMapping>(mapping)),
    bandwidth: entry.bandwidth === undefined ? undefined : defined(entry.bandwidth),
    deviceId: entry.deviceID,
    cniArgs: entry["cni-args"],
    ipamClaim: entry["ipam-claim-reference"],
  };
  return defined(wishes);
}

/** Without the keys whose value is undefined. */
function defined<T extends object>(value: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(
    Object.entries(value).filter(([, item]) => item !== undefined),
  ) as unknown as T;
}
