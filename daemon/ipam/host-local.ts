import { join } from "node:path";
import {
  type AddressRange,
  formatRangeSet,
  nextFree,
  type RangeSet,
  rangeOf,
} from "../../lib/api/ip-ranges.ts";
import { compareIp, formatCidr, formatIp, type Ip, withPrefix } from "../../lib/base/ip.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniDns, CniIp, CniResult, ValidAttachment } from "../../lib/cni/types.ts";
import type { NetworkCall } from "../plugins/plugin.ts";
import { asCniError } from "../plugins/shared/errors.ts";
import { AddressDirectory, type LockedAddresses } from "./address-directory.ts";
import { addressOfFile } from "./address-index.ts";
import { type HostLocalConfig, readHostLocalConfig } from "./host-local-config.ts";
import type { IpamCall, IpamPlugin } from "./ipam.ts";
import { readResolvConf } from "./resolv-conf.ts";

const defaultDataDir = "/var/lib/cni/networks";

/**
 * Addresses of the node's own ranges, on disk as the reference's host-local keeps them (`<dataDir>/<network>/<ip>`), so that both can
 * work on one directory. An attachment that comes again gets the addresses that it holds already.
 */
export function createHostLocal(): IpamPlugin {
  const directories = new Map<string, AddressDirectory>();
  const directoryOf = (call: NetworkCall): AddressDirectory => {
    const path = join(dataDirOf(call), call.network);
    const known = directories.get(path) ?? new AddressDirectory(path);
    directories.set(path, known);
    return known;
  };
  return {
    add: (call) => add(call, directoryOf(call)),
    del: (call) => del(call, directoryOf(call)),
    check: (call) => check(call, directoryOf(call)),
    gc: (call, valid) => gc(call, directoryOf(call), valid),
  };
}

function dataDirOf(call: NetworkCall): string {
  const dataDir = call.config.ipam?.["dataDir"];
  return typeof dataDir === "string" && dataDir !== "" ? dataDir : defaultDataDir;
}

/** The text of an attachment's files. */
function ownerOf(call: Pick<IpamCall, "containerId" | "ifName">): string {
  return `${call.containerId.trim()}\r\n${call.ifName}`;
}

async function add(call: IpamCall, directory: AddressDirectory): Promise<CniResult> {
  const config = readHostLocalConfig(call);
  const dns = readDns(call, config);
  const ips = await onDisk(call, "reserve an address", () =>
    directory.locked(call.signal, (files) => allocate({ call, config, files })),
  );
  return { interfaces: [], ips, routes: config.routes, dns };
}

function readDns(call: IpamCall, config: HostLocalConfig): CniDns {
  if (config.resolvConf === undefined) return {};
  try {
    return readResolvConf(config.resolvConf);
  } catch (error) {
    const action = `read ipam.resolvConf of network "${call.network}"`;
    throw asCniError(error, cniCode.invalidNetworkConfig, action);
  }
}

interface Allocation {
  readonly call: IpamCall;
  readonly config: HostLocalConfig;
  readonly files: LockedAddresses;
}

/** One address of each set, or an error and nothing that was not there before. */
function allocate(allocation: Allocation): readonly CniIp[] {
  const { call, config, files } = allocation;
  const owner = ownerOf(call);
  const own = files.addressesOf(owner);
  const reserved: Ip[] = [];
  try {
    const open = [...config.requested];
    const ips = config.sets.map((set, index) => {
      const at = open.findIndex((ip) => rangeOf(set, ip) !== undefined);
      const [requested] = at < 0 ? [] : open.splice(at, 1);
      const place = { set, index, own, reserved };
      return requested === undefined
        ? allocateAny(allocation, place)
        : allocateRequested(allocation, { ...place, requested });
    });
    if (open.length > 0) {
      const list = open.map((ip) => `"${formatIp(ip)}"`).join(", ");
      throw unavailable(call, `requested ${list}: in none of the network's ranges`);
    }
    return ips;
  } catch (error) {
    for (const ip of reserved) files.release(ip, owner);
    throw error;
  }
}

interface Place {
  readonly set: RangeSet;
  readonly index: number;
  /** What the attachment held before. */
  readonly own: readonly Ip[];
  /** What this call reserved. */
  readonly reserved: Ip[];
}

function allocateRequested(
  { call, files }: Allocation,
  { requested, set, index, own, reserved }: Place & { readonly requested: Ip },
): CniIp {
  const range = rangeOf(set, requested);
  if (range === undefined || compareIp(range.gateway, requested) === 0) {
    throw unavailable(call, `requested "${formatIp(requested)}": is the gateway of its subnet`);
  }
  if (own.some((ip) => compareIp(ip, requested) === 0)) return resultIp(requested, range);
  if (files.has(requested) || !files.reserve(requested, ownerOf(call))) {
    throw unavailable(
      call,
      `requested "${formatIp(requested)}": is taken in range ${formatRangeSet(set)}`,
    );
  }
  reserved.push(requested);
  files.setLastReserved(index, requested);
  return resultIp(requested, range);
}

function allocateAny({ call, files }: Allocation, place: Place): CniIp {
  const { set, index, own, reserved } = place;
  for (const ip of own) {
    const range = rangeOf(set, ip);
    if (range !== undefined) return resultIp(ip, range);
  }
  const { family } = set[0].subnet;
  const taken = (value: bigint): boolean => files.has({ family, value });
  const last = files.lastReserved(index);
  for (let next = nextFree(set, last, taken); next; next = nextFree(set, last, taken)) {
    if (!files.reserve(next.ip, ownerOf(call))) continue;
    reserved.push(next.ip);
    files.setLastReserved(index, next.ip);
    return resultIp(next.ip, next.range);
  }
  throw unavailable(
    call,
    `no address left in range ${formatRangeSet(set)} (range set ${index}): delete attachments or widen the range`,
  );
}

function resultIp(ip: Ip, range: AddressRange): CniIp {
  return {
    address: formatCidr(withPrefix(ip, range.subnet.prefixLength)),
    gateway: formatIp(range.gateway),
  };
}

function unavailable(call: NetworkCall, text: string): CniError {
  return new CniError(
    cniCode.addressUnavailable,
    `allocate an address of network "${call.network}": ${text}`,
  );
}

/** Frees the attachment's files; when it has none, those of its container in the format without interface names. */
async function del(call: IpamCall, directory: AddressDirectory): Promise<void> {
  if (!directory.exists()) return;
  await onDisk(call, "free the addresses", () =>
    directory.locked(call.signal, (files) => {
      const old = call.containerId.trim();
      const owner = files.addressesOf(ownerOf(call)).length > 0 ? ownerOf(call) : old;
      for (const ip of files.addressesOf(owner)) files.release(ip, owner);
    }),
  );
}

async function check(call: IpamCall, directory: AddressDirectory): Promise<void> {
  readHostLocalConfig(call);
  const held =
    directory.exists() &&
    (await onDisk(call, "look up the addresses", () =>
      directory.locked(call.signal, (files) =>
        [ownerOf(call), call.containerId.trim()].some(
          (owner) => files.addressesOf(owner).length > 0,
        ),
      ),
    ));
  if (held) return;
  throw new CniError(
    cniCode.addressUnavailable,
    `check host-local of network "${call.network}": no address is reserved for container "${call.containerId}", interface "${call.ifName}"`,
  );
}

/**
 * Frees what no valid attachment holds. Files without any text go too: their writer was killed, since whoever writes holds the lock that
 * is held here. Files with other text belong to somebody else and stay.
 */
async function gc(
  call: NetworkCall,
  directory: AddressDirectory,
  valid: readonly ValidAttachment[],
): Promise<void> {
  if (!directory.exists()) return;
  const owners = new Set(
    valid.flatMap(({ containerID, ifname }) => [
      ownerOf({ containerId: containerID, ifName: ifname }),
      containerID.trim(),
    ]),
  );
  await onDisk(call, "collect stale addresses", () =>
    directory.locked(call.signal, (files) => {
      for (const [file, owner] of files.entries()) {
        const ip = addressOfFile(file);
        if (ip !== undefined && !owners.has(owner) && !isLeft(call, formatIp(ip), owner))
          files.release(ip, owner);
      }
    }),
  );
}

/** Whether an address that no valid attachment has is left alone; noted then. */
function isLeft(call: NetworkCall, address: string, owner: string): boolean {
  if (isOwner(owner)) return mayBeInUse(call, address, owner);
  // A damaged file, or somebody else's.
  const why = "its file names no container: remove it if nobody uses the address";
  call.liveness?.leave(`address ${address} of network ${call.network}`, why);
  return true;
}

/** Whether a pod that is older than podnet, or whose record was lost, may have the address; noted then. */
function mayBeInUse({ liveness, network }: NetworkCall, address: string, owner: string): boolean {
  const [containerId = "", ifName] = owner.split("\r\n");
  if (containerId === "") return false;
  const what = ifName === undefined ? { containerId, address } : { containerId, address, ifName };
  const why = liveness?.inUse(what);
  if (why === undefined) return false;
  const text = `address ${address} of network ${network}, container ${owner.replace("\r\n", " ")}`;
  liveness?.leave(text, why);
  return true;
}

/** Empty, a container id, or a container id and an interface name, by the CNI specification's rules for both. */
function isOwner(text: string): boolean {
  return /^([a-zA-Z0-9][\w.-]*(\r\n[^\s/:]{1,15})?)?$/.test(text);
}

async function onDisk<T>(call: NetworkCall, what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const code = call.signal.aborted ? cniCode.tryAgainLater : cniCode.ioFailure;
    throw asCniError(error, code, `${what} of network "${call.network}"`);
  }
}
