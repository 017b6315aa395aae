import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { podAnnotationsCapability } from "../../../lib/api/names.ts";
import { errorCode, errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import { findPlugin } from "../../../lib/cni/find-plugin.ts";
import { isCniIdentifier, isInterfaceName } from "../../../lib/cni/names.ts";
import type { DelRequest } from "../../../lib/cni/request.ts";
import type { ValidAttachment } from "../../../lib/cni/types.ts";
import type { NodeContext } from "../context.ts";
import type { AttachmentRecord, SandboxRecord } from "../record.ts";
import { decodeForeign, decodeMultusCache, type MultusCache } from "./cache.ts";
import { type CachedResult, cachedAttachments, cachedResults } from "./cache-results.ts";

/** The parts of a call that say whose sandbox it is. */
export type ForeignRequest = Pick<
  DelRequest,
  "containerId" | "ifName" | "networkName" | "cniPath" | "cniVersion" | "config"
>;

/** What somebody else attached to a sandbox, as their files say it. */
export interface Inherited {
  /** In the order of attaching. */
  readonly attachments: readonly AttachmentRecord[];
  /** Their files say all of it: nothing needs to be guessed. */
  readonly complete: boolean;
  readonly files: NonNullable<SandboxRecord["inherited"]>;
}

type Config = Pick<NodeContext["config"], "multusCacheDir" | "cniCacheDir">;

/** Where the CNI library keeps results: for runtimes, for Multus up to 3.6, and for Multus since. */
function resultFolders({ multusCacheDir, cniCacheDir }: Config): readonly string[] {
  return [join(multusCacheDir, "results"), join(cniCacheDir, "results")];
}

/** Meta plugins: their own entries in a cache are no attachments. */
const meta = new Set(["podnet", "multus", "multus-shim"]);

function isMeta({ plugins }: Conflist): boolean {
  return plugins.some(({ type }) => meta.has(type));
}

/**
 * Finds what Multus, or the runtime itself, attached to a sandbox that podnet has no record of. undefined: nobody's files name the container;
 * `in hand`: a Multus that lives and delegates to podnet has it. Rejects with code 11 when the files can't be read: not to know is not the same as nothing.
 */
export async function findInherited(
  node: NodeContext,
  request: ForeignRequest,
): Promise<Inherited | "in hand" | undefined> {
  const { config, log } = node;
  const { containerId, ifName, cniVersion } = request;
  const path = join(config.multusCacheDir, containerId);
  const [content, all] = await readAll(path, () =>
    cachedResults(resultFolders(config), containerId),
  );
  // What the runtime remembers of podnet itself is its own.
  const results = all.filter(({ network }) => network !== request.networkName);
  if (content === undefined && results.length === 0) return undefined;
  const cache: MultusCache | undefined =
    content === undefined ? undefined : decodeMultusCache(content, { ifName, cniVersion });
  if (cache?.delegates.some(({ conflist }) => conflist.plugins.some(isPodnet))) return "in hand";
  const torn = cache !== undefined && cache.faults.length > 0;
  if (torn) {
    log.warn(
      { file: path, containerId, fault: cache.faults.join("; ") },
      "Multus' cache is damaged, what is left of it is used",
    );
  }
  const known = fromDelegates(cache, results, request);
  const rest = cache === undefined || torn ? fromResults(known, results, request) : [];
  const attachments = [...known, ...rest.toSorted(byInterface(ifName))];
  await markExternal(node, attachments, request.cniPath);
  const files = [...results.map((result) => result.path), ...deviceFiles(results)];
  return {
    attachments,
    complete: cache !== undefined && !torn,
    files: torn
      ? { files, torn: path }
      : { files: content === undefined ? files : [...files, path] },
  };
}

function isPodnet({ type }: Conflist["plugins"][number]): boolean {
  return type === "podnet";
}

async function readAll(
  path: string,
  readResults: () => Promise<CachedResult[]>,
): Promise<[string | undefined, CachedResult[]]> {
  try {
    return await Promise.all([readCache(path), readResults()]);
  } catch (error) {
    const message = `read what was attached before podnet ("${path}"): ${errorText(error)}: repair or remove it`;
    throw new CniError(cniCode.tryAgainLater, message, { cause: error });
  }
}

async function readCache(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    // A folder (the library's "results") is no sandbox.
    if (["ENOENT", "ENOTDIR", "EISDIR"].includes(errorCode(error) ?? "")) return undefined;
    throw error;
  }
}

function fromDelegates(
  cache: MultusCache | undefined,
  results: readonly CachedResult[],
  request: ForeignRequest,
): AttachmentRecord[] {
  return (cache?.delegates ?? []).map((delegate, index) => {
    const { network, ifName, conflist } = delegate;
    const cached = results.find((one) => one.network === conflist.name && one.ifName === ifName);
    const asked = { ...(index === 0 ? runtimeConfigOf(request) : {}), ...delegate.capabilityArgs };
    return attachmentOf({ network, ifName, conflist, asked, cached, isDefault: index === 0 });
  });
}

/** Attachments that only the library's results tell of. */
function fromResults(
  known: readonly AttachmentRecord[],
  results: readonly CachedResult[],
  { ifName: first, cniVersion }: ForeignRequest,
): AttachmentRecord[] {
  return results.flatMap((cached) => {
    const { config, network, ifName } = cached;
    if (config === undefined || known.some((one) => one.ifName === ifName)) return [];
    if (!isInterfaceName(ifName)) return [];
    const conflist = decodable(config, { name: network, cniVersion });
    if (conflist === undefined || isMeta(conflist)) return [];
    const isDefault = ifName === first;
    return [attachmentOf({ network, ifName, conflist, asked: {}, cached, isDefault })];
  });
}

function decodable(
  config: string,
  defaults: Parameters<typeof decodeForeign>[1],
): Conflist | undefined {
  try {
    return decodeForeign(config, defaults);
  } catch {
    return undefined;
  }
}

function attachmentOf(from: {
  readonly network: string;
  readonly ifName: string;
  readonly conflist: Conflist;
  readonly asked: JsonObject;
  readonly cached: CachedResult | undefined;
  readonly isDefault: boolean;
}): AttachmentRecord {
  const { network, ifName, conflist, cached, asked } = from;
  const remembered = cached?.capabilityArgs ?? {};
  return {
    network,
    ifName,
    default: from.isDefault,
    conflist: conflist.text,
    capabilityArgs: Object.keys(remembered).length > 0 ? remembered : asked,
    ...(cached?.result === undefined ? {} : { result: cached.result }),
    states: begunStates(conflist),
  };
}

/** Whoever attached the sandbox has begun all of it. */
export function begunStates({ plugins }: Conflist): AttachmentRecord["states"] {
  const places = plugins.flatMap((_, index) => [`${index}`, `${index}.ipam`]);
  return Object.fromEntries(places.map((place) => [place, { started: true }]));
}

function runtimeConfigOf({ config }: ForeignRequest): JsonObject {
  const given = config["runtimeConfig"];
  if (!isJsonObject(given)) return {};
  const { [podAnnotationsCapability]: _, ...rest } = given;
  return rest;
}

/** The runtime's interface first, the others by number, as they were attached. */
function byInterface(first: string) {
  const rank = ({ ifName }: AttachmentRecord): number =>
    ifName === first ? -1 : Number(/^net(\d+)$/.exec(ifName)?.[1] ?? 1_000);
  return (a: AttachmentRecord, b: AttachmentRecord): number => rank(a) - rank(b);
}

/**
 * What executables made (iptables chains, names of links) only they undo, so they run wherever they are installed. Types that are not
 * fall to podnet's own, which knows the addresses and the interface.
 */
export async function markExternal(
  node: NodeContext,
  attachments: readonly AttachmentRecord[],
  cniPath: readonly string[],
): Promise<void> {
  const path = [...cniPath, ...node.config.cniBinDir];
  for (const attachment of attachments) {
    const { plugins } = decodeForeign(attachment.conflist, { name: "", cniVersion: "1.0.0" });
    const external: number[] = [];
    for (const [index, { type, ipam }] of plugins.entries()) {
      const needed = ipam?.type ? [type, ipam.type] : [type];
      const there = await Promise.all(needed.map((one) => isThere(one, path)));
      if (there.every(Boolean)) external.push(index);
    }
    attachment.external = external;
  }
}

async function isThere(type: string, cniPath: readonly string[]): Promise<boolean> {
  return await findPlugin(type, cniPath).then(
    () => true,
    () => false,
  );
}

/** Multus' copies of device information, which its DEL removes. */
function deviceFiles(results: readonly CachedResult[]): string[] {
  return results.flatMap(({ capabilityArgs }) => {
    const path = capabilityArgs["CNIDeviceInfoFile"];
    const known = /^(\/var)?\/run\/k8s\.cni\.cncf\.io\/devinfo\/cni\/[^/]+$/;
    return typeof path === "string" && known.test(path) ? [path] : [];
  });
}

/** An attachment of somebody else's, with its network's name. */
export interface ForeignAttachment extends ValidAttachment {
  readonly network: string;
  /** Where the files tell. */
  readonly pod: SandboxRecord["pod"];
}

/** Containers that Multus' files name. A folder that is not there names none. */
export async function multusContainers({ multusCacheDir }: Config): Promise<string[]> {
  try {
    const entries = await readdir(multusCacheDir, { withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile() && isCniIdentifier(entry.name))
      .map(({ name }) => name);
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? "")) return [];
    throw error;
  }
}

/** Everything that is attached by others as far as files say so. GC must not take what they hold for garbage. */
export async function foreignAttachments(config: Config): Promise<ForeignAttachment[]> {
  const cached = await cachedAttachments(resultFolders(config));
  const found: ForeignAttachment[] = cached.map(({ network, containerId, ifName, pod }) => ({
    network,
    containerID: containerId,
    ifname: ifName,
    pod,
  }));
  for (const containerID of await multusContainers(config)) {
    const content = await readCache(join(config.multusCacheDir, containerID));
    const defaults = { ifName: "eth0", cniVersion: "1.0.0" } as const;
    for (const { conflist, ifName } of decodeMultusCache(content ?? "[]", defaults).delegates) {
      found.push({ network: conflist.name, containerID, ifname: ifName, pod: {} });
    }
  }
  return found;
}

/** Paths of the namespaces that a container of Multus was attached in, as far as results say so. */
export async function sandboxesOf(config: Config, containerId: string): Promise<string[]> {
  const results = await cachedResults(resultFolders(config), containerId);
  const paths = results.flatMap(({ result }) =>
    (result?.interfaces ?? []).flatMap(({ sandbox }) => sandbox ?? []),
  );
  return [...new Set(paths)];
}
