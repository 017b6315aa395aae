import { type FSWatcher, readdirSync, watch } from "node:fs";
import { extname, join } from "node:path";
import type { Nad, PodNetwork, PodNetworkAttachment } from "../../lib/api/objects.ts";
import { type NetworkRef, refName } from "../../lib/api/selection.ts";
import { errorCode, errorText, fileFault } from "../../lib/base/errors.ts";
import type { Log } from "../../lib/base/log.ts";
import { findConflist } from "../../lib/cni/conf-dir.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { doubtOf, keyOf, type ReadFile, readManifestFile } from "./manifest-files.ts";
import type { Manifest } from "./manifests.ts";

/** A network that a source knows, usable or not. */
export interface KnownNetwork {
  readonly ref: NetworkRef;
  readonly file: string;
  /** Why it can't be used: `file.yaml line 3: spec.provider: ...`. */
  readonly fault?: string;
}

/**
 * Where networks come from. undefined is "there is none"; a source that can't tell rejects with code 11, and one that has the object but
 * can't use it with code 101 (102 for a NAD).
 */
export interface NetworkSource {
  podNetwork(name: string): Promise<PodNetwork | undefined>;
  podNetworkAttachment(namespace: string, name: string): Promise<PodNetworkAttachment | undefined>;
  nad(namespace: string, name: string): Promise<Nad | undefined>;
  /** The node's own network configuration of that name. */
  conflist(name: string): Promise<Conflist | undefined>;
  list(): Promise<readonly KnownNetwork[]>;
  /** Networks beside those of `list`, for who examines a node: a cluster's NetworkAttachmentDefinitions that can be decoded, which tenants write. */
  extra?(): Promise<readonly NetworkRef[]>;
  /** What can't be read and does not even say which network it is: `"file.yaml" line 3: ...`. Absent where there are no files. */
  unreadable?(): Promise<readonly string[]>;
  /** The ranges of addresses that the cluster has set apart for this node's pods; absent where there is no cluster. */
  podCidrs?(): Promise<readonly string[]>;
}

const extensions = [".yaml", ".yml", ".json"];

/**
 * The manifests of a directory. It is looked at again for each question (a new or changed file counts from the next ADD on), and
 * watched so that a bad file is logged when it is written, not when it is needed.
 */
export class DirectoryNetworks implements NetworkSource, Disposable {
  readonly #dir: string;
  readonly #confDir: string;
  readonly #log: Log;
  #files = new Map<string, ReadFile>();
  #known = new Map<string, readonly Manifest[]>();
  /** The directory's state was read in this turn of the event loop. */
  #fresh = false;
  #watcher: FSWatcher | undefined;
  #soon: NodeJS.Timeout | undefined;

  constructor(config: { readonly networksDir: string; readonly cniConfDir: string }, log: Log) {
    this.#dir = config.networksDir;
    this.#confDir = config.cniConfDir;
    this.#log = log;
    this.#watch();
    this.#refresh();
  }

  async podNetwork(name: string): Promise<PodNetwork | undefined> {
    const object = this.#find({ kind: "podNetwork", name });
    return object?.kind === "PodNetwork" ? object : undefined;
  }

  async podNetworkAttachment(
    namespace: string,
    name: string,
  ): Promise<PodNetworkAttachment | undefined> {
    const object = this.#find({ kind: "podNetworkAttachment", namespace, name });
    return object?.kind === "PodNetworkAttachment" ? object : undefined;
  }

  async nad(namespace: string, name: string): Promise<Nad | undefined> {
    const object = this.#find({ kind: "nad", namespace, name });
    return object?.kind === "NetworkAttachmentDefinition" ? object : undefined;
  }

  async conflist(name: string): Promise<Conflist | undefined> {
    return await findConflist(this.#confDir, name);
  }

  async list(): Promise<readonly KnownNetwork[]> {
    this.#refresh();
    return [...this.#known.values()].flatMap((manifests): KnownNetwork[] => {
      const [first] = manifests;
      if (first?.ref === undefined) return [];
      const fault = faultOf(manifests);
      return [{ ref: first.ref, file: first.file, ...(fault === undefined ? {} : { fault }) }];
    });
  }

  async unreadable(): Promise<readonly string[]> {
    this.#refresh();
    return [...this.#files.values()]
      .flatMap(({ manifests }) => manifests.filter(({ ref }) => ref === undefined))
      .flatMap(({ faults }) => faults)
      .map(({ file, line, text }) => `"${file}" line ${line}: ${text}`);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#soon);
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  #find(ref: NetworkRef): Manifest["object"] {
    this.#refresh();
    const manifests = this.#known.get(keyOf(ref));
    const fault = manifests === undefined ? this.#doubt(ref) : faultOf(manifests);
    if (fault === undefined) return manifests?.[0]?.object;
    const code = ref.kind === "nad" ? cniCode.nadMissing : cniCode.podNetworkNotReady;
    throw new CniError(code, `${title(ref)} can't be used: ${fault}`);
  }

  #doubt(ref: NetworkRef): string | undefined {
    for (const [path, file] of this.#files) {
      const doubt = doubtOf(ref, path, file);
      if (doubt !== undefined) return doubt;
    }
    return undefined;
  }

  #refresh(): void {
    if (this.#fresh) return;
    const before = this.#files;
    this.#files = this.#readFiles();
    this.#fresh = true;
    setImmediate(() => {
      this.#fresh = false;
    });
    if (same(before, this.#files)) return;
    this.#known = index(this.#files.values());
    for (const [name, file] of this.#files) {
      if (before.get(name) !== file) this.#report(file);
    }
    for (const manifests of this.#known.values()) {
      if (manifests.length > 1) this.#log.warn({ fault: faultOf(manifests) }, "network refused");
    }
  }

  #readFiles(): Map<string, ReadFile> {
    const files = new Map<string, ReadFile>();
    for (const name of this.#names()) {
      const path = join(this.#dir, name);
      files.set(path, readManifestFile(path, this.#files.get(path)));
    }
    return files;
  }

  #names(): readonly string[] {
    try {
      return readdirSync(this.#dir)
        .filter((name) => !name.startsWith(".") && extensions.includes(extname(name)))
        .sort();
    } catch (error) {
      // A directory that was never there is empty; one that has vanished says nothing about its networks.
      if (errorCode(error) === "ENOENT" && this.#files.size === 0) return [];
      throw unreadable(this.#dir, error);
    }
  }

  #report({ manifests }: ReadFile): void {
    for (const { faults, warnings } of manifests) {
      for (const { file, line, text } of faults) {
        this.#log.warn({ file, line, fault: text }, "network refused");
      }
      for (const { file, line, text } of warnings) {
        this.#log.warn({ file, line, note: text }, "network manifest");
      }
    }
  }

  /** Best effort: without it faults are logged a little later. */
  #watch(): void {
    try {
      this.#watcher = watch(this.#dir, { persistent: false }, () => this.#lookSoon());
      this.#watcher.on("error", (error) => this.#log.debug({ fault: errorText(error) }, "watch"));
    } catch (error) {
      this.#log.info({ dir: this.#dir, reason: errorText(error) }, "networks are not watched");
    }
  }

  #lookSoon(): void {
    this.#soon ??= setTimeout(() => {
      this.#soon = undefined;
      try {
        this.#refresh();
      } catch (error) {
        this.#log.warn({ fault: errorText(error) }, "networks can't be read");
      }
    }, 50).unref();
  }
}

/** Not to know is not the same as to have none: the ADD is to be tried again. */
function unreadable(dir: string, cause: unknown): CniError {
  const message = `read networks of "${dir}": ${fileFault(cause)}`;
  return new CniError(cniCode.tryAgainLater, message, { cause });
}

/** `PodNetwork "blue"`, `NetworkAttachmentDefinition "app/net-a"` */
export function title(ref: NetworkRef): string {
  const kind = {
    podNetwork: "PodNetwork",
    podNetworkAttachment: "PodNetworkAttachment",
    nad: "NetworkAttachmentDefinition",
  }[ref.kind];
  return `${kind} "${refName(ref)}"`;
}

function index(files: Iterable<ReadFile>): Map<string, readonly Manifest[]> {
  const all = [...files].flatMap(({ manifests }) => manifests);
  const named = all.filter(({ ref }) => ref !== undefined);
  return Map.groupBy(named, ({ ref }) => (ref === undefined ? "" : keyOf(ref)));
}

/** Why none of the manifests with one name can be used; undefined when it is one and sound. */
function faultOf(manifests: readonly Manifest[]): string | undefined {
  const [first, second] = manifests;
  if (first === undefined) return undefined;
  if (second !== undefined) {
    const places = manifests.map(({ file, line }) => `"${file}" line ${line}`).join(" and ");
    const what = first.ref === undefined ? "" : `${title(first.ref)} `;
    return `${what}is defined more than once: in ${places}: remove one`;
  }
  const faults = first.faults.map(({ line, text }) => `line ${line}: ${text}`);
  return faults.length === 0 ? undefined : `"${first.file}" ${faults.join("; ")}`;
}

function same(left: Map<string, ReadFile>, right: Map<string, ReadFile>): boolean {
  if (left.size !== right.size) return false;
  for (const [path, file] of right) if (left.get(path) !== file) return false;
  return true;
}
