import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { decode } from "../../../lib/base/decode.ts";
import { errorCode } from "../../../lib/base/errors.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import { decodeResult } from "../../../lib/cni/result.ts";
import type { CniResult } from "../../../lib/cni/types.ts";
import { podOf } from "../pods.ts";
import type { SandboxRecord } from "../record.ts";

/**
 * One attachment as the CNI project's library remembers it, for runtimes and for Multus: `<folder>/results/<network>-<container>-<interface>`,
 * written after a successful ADD and removed by DEL (libcni, `cachedInfo`). Older libraries wrote the bare result.
 */
export interface CachedResult {
  readonly path: string;
  readonly network: string;
  readonly containerId: string;
  readonly ifName: string;
  /** The network configuration that ADD ran; undefined in the older form. */
  readonly config: string | undefined;
  readonly capabilityArgs: JsonObject;
  readonly result: CniResult | undefined;
}

const cachedInfo = z.looseObject({
  kind: z.string(),
  containerId: z.string().nullish(),
  config: z.string().nullish(),
  capabilityArgs: z.record(z.string(), z.unknown()).nullish(),
  result: z.unknown(),
});

/** Runtimes of thousands of sandboxes have as many files; one is a few kilobytes. */
const largestFile = 1024 * 1024;

/** Names of the files in the folders that may be of this container, or of any container. Folders that are not there have none. */
async function filesIn(folders: readonly string[], containerId?: string): Promise<string[]> {
  const paths: string[] = [];
  for (const folder of folders) {
    try {
      const names = await readdir(folder);
      const own = names.filter(
        (name) => containerId === undefined || name.includes(`-${containerId}-`),
      );
      paths.push(...own.map((name) => join(folder, name)));
    } catch (error) {
      if (errorCode(error) !== "ENOENT" && errorCode(error) !== "ENOTDIR") throw error;
    }
  }
  return paths;
}

/**
 * What was attached to one container. A file that can't be decoded still tells network and interface by its name. Throws a system error when a folder
 * or file can't be read.
 */
export async function cachedResults(
  folders: readonly string[],
  containerId: string,
): Promise<CachedResult[]> {
  const found: CachedResult[] = [];
  for (const path of await filesIn(folders, containerId)) {
    const place = placeOf(path, containerId);
    const content = await readSmall(path);
    const known = content === undefined ? undefined : contentOf(content, containerId);
    if (known !== undefined) found.push({ ...place, path, ...known });
  }
  return found;
}

function placeOf(
  path: string,
  containerId: string,
): Pick<CachedResult, "network" | "containerId" | "ifName"> {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const mark = `-${containerId}-`;
  const at = name.indexOf(mark);
  return { network: name.slice(0, at), containerId, ifName: name.slice(at + mark.length) };
}

async function readSmall(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path)).subarray(0, largestFile).toString("utf8");
  } catch (error) {
    if (["ENOENT", "EISDIR"].includes(errorCode(error) ?? "")) return undefined;
    throw error;
  }
}

type Content = Pick<CachedResult, "config" | "capabilityArgs" | "result">;

/** undefined: it is another container's, whose network or interface has this one's id in its name. */
function contentOf(content: string, containerId: string): Content | undefined {
  try {
    const value: unknown = JSON.parse(content);
    if (!isJsonObject(value)) return nothing;
    if (value["kind"] === undefined) return { ...nothing, result: resultOf(value) };
    const info = decode(cachedInfo, value, "cached result");
    if (info.containerId && info.containerId !== containerId) return undefined;
    return {
      config: info.config ? Buffer.from(info.config, "base64").toString("utf8") : undefined,
      capabilityArgs: isJsonObject(info.capabilityArgs) ? info.capabilityArgs : {},
      result: resultOf(info.result),
    };
  } catch {
    return nothing;
  }
}

const nothing: Content = { config: undefined, capabilityArgs: {}, result: undefined };

/** DEL works without it. */
function resultOf(value: unknown): CniResult | undefined {
  try {
    return decodeResult(value, "1.0.0");
  } catch {
    return undefined;
  }
}

/** Who holds something by the files of a folder. */
export interface CachedOwner extends Pick<CachedResult, "network" | "containerId" | "ifName"> {
  /** The pod that CNI_ARGS named; empty when they named none. */
  readonly pod: SandboxRecord["pod"];
}

const ownerSchema = z.looseObject({
  networkName: z.string(),
  containerId: z.string(),
  ifName: z.string(),
  cniArgs: z.array(z.array(z.string())).nullish(),
});

/** Who holds something, whoever attached it: for GC, which must not free it. Files that say nothing are passed over. */
export async function cachedAttachments(folders: readonly string[]): Promise<CachedOwner[]> {
  const found: CachedOwner[] = [];
  for (const path of await filesIn(folders)) {
    const content = await readSmall(path);
    const owner = content === undefined ? undefined : ownerOf(content);
    if (owner !== undefined) found.push(owner);
  }
  return found;
}

function ownerOf(content: string): CachedOwner | undefined {
  try {
    const outcome = ownerSchema.safeParse(JSON.parse(content));
    if (!outcome.success) return undefined;
    const { networkName, containerId, ifName, cniArgs } = outcome.data;
    const args = new Map((cniArgs ?? []).map(([key = "", value = ""]) => [key, value]));
    return { network: networkName, containerId, ifName, pod: podOf(args) };
  } catch {
    return undefined;
  }
}
