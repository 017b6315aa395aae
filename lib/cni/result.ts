import { DecodeError, decode } from "../base/decode.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import { CniError, cniCode } from "./errors.ts";
import { oldResultSchema, resultSchema, withoutBlanks } from "./result-schema.ts";
import type { CniDns, CniInterface, CniIp, CniResult, CniRoute, CniVersion } from "./types.ts";
import { isSupportedVersion, versionAtLeast } from "./versions.ts";

/**
 * Decodes the result of a plugin, of whatever version. Its own `cniVersion` counts; without one, `configVersion` does (as the CNI
 * project's library reads it). Unknown keys are passed over; null and "" count as absent.
 * Throws a CniError: code 1 for a version that podnet does not speak, 6 with every fault for anything else.
 */
export function decodeResult(value: unknown, configVersion: CniVersion): CniResult {
  const version = resultVersion(value, configVersion);
  try {
    const present = withoutBlanks(value);
    if (versionAtLeast(version, "0.3.0")) return decode(resultSchema, present, "CNI result");
    return fromOldShape(present);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw new CniError(cniCode.decodingFailure, error.message, { cause: error });
  }
}

/**
 * Writes a result as a version of the specification has it; what the version can't carry is left out. From 0.3.0 on the
 * `podNetwork` tags stay. Empty lists and an empty `dns` are left out.
 * Throws a CniError (code 1) when a result without an address is wanted as 0.1.0 or 0.2.0, which can't say that.
 */
export function encodeResult(result: CniResult, version: CniVersion): JsonObject {
  if (!versionAtLeast(version, "0.3.0")) return toOldShape(result, version);
  return {
    cniVersion: version,
    ...listMember("interfaces", result.interfaces, (item) => encodeInterface(item, version)),
    ...listMember("ips", result.ips, (item) => encodeIp(item, version)),
    ...listMember("routes", result.routes, (item) => encodeRoute(item, version)),
    ...dnsMember(result.dns),
  };
}

function resultVersion(value: unknown, configVersion: CniVersion): CniVersion {
  if (!isJsonObject(value)) {
    throw new CniError(cniCode.decodingFailure, "decode CNI result: must be a JSON object");
  }
  const version = value["cniVersion"] ?? "";
  if (version === "") return configVersion;
  if (typeof version === "string" && isSupportedVersion(version)) return version;
  const message = `decode CNI result: cniVersion: ${JSON.stringify(version)} is not supported`;
  throw new CniError(cniCode.incompatibleVersion, message);
}

/** 0.1.0 and 0.2.0: one address a family, its routes beside it, no interfaces. */
function fromOldShape(value: unknown): CniResult {
  const old = decode(oldResultSchema, value, "CNI result");
  const families = [old.ip4, old.ip6].filter((family) => family !== undefined);
  const ips = families.map(
    ({ ip, gateway }): CniIp =>
      gateway === undefined ? { address: ip } : { address: ip, gateway },
  );
  return { interfaces: [], ips, routes: families.flatMap(({ routes }) => routes), dns: old.dns };
}

function toOldShape(result: CniResult, version: CniVersion): JsonObject {
  const ip4 = oldFamily(result, false);
  const ip6 = oldFamily(result, true);
  if (ip4 === undefined && ip6 === undefined) {
    const message = `write CNI result as version "${version}": it has no IP address, which needs cniVersion 0.3.0 or newer`;
    throw new CniError(cniCode.incompatibleVersion, message);
  }
  return {
    cniVersion: version,
    ...(ip4 === undefined ? {} : { ip4 }),
    ...(ip6 === undefined ? {} : { ip6 }),
    ...dnsMember(result.dns),
  };
}

function oldFamily(result: CniResult, v6: boolean): JsonObject | undefined {
  const first = result.ips.find(({ address }) => isV6(address) === v6);
  if (first === undefined) return undefined;
  const routes = result.routes.filter(({ dst }) => isV6(dst) === v6);
  return {
    ip: first.address,
    ...(first.gateway === undefined ? {} : { gateway: first.gateway }),
    ...listMember("routes", routes, oldRoute),
  };
}

function encodeInterface(item: CniInterface, version: CniVersion): JsonObject {
  if (versionAtLeast(version, "1.1.0")) return { ...item };
  const { mtu, socketPath, pciID, ...older } = item;
  return older;
}

/** 0.3.0 to 0.4.0 want the family beside the address. */
function encodeIp(item: CniIp, version: CniVersion): JsonObject {
  if (versionAtLeast(version, "1.0.0")) return { ...item };
  return { version: isV6(item.address) ? "6" : "4", ...item };
}

function encodeRoute(item: CniRoute, version: CniVersion): JsonObject {
  return versionAtLeast(version, "1.1.0") ? { ...item } : oldRoute(item);
}

function oldRoute({ dst, gw }: CniRoute): JsonObject {
  return gw === undefined ? { dst } : { dst, gw };
}

function dnsMember(dns: CniDns): JsonObject {
  const members = Object.entries(dns).filter(([, value]) => value.length > 0);
  return members.length === 0 ? {} : { dns: Object.fromEntries(members) };
}

function listMember<T>(
  key: string,
  items: readonly T[],
  encode: (item: T) => JsonObject,
): JsonObject {
  return items.length === 0 ? {} : { [key]: items.map(encode) };
}

function isV6(address: string): boolean {
  return address.includes(":");
}
