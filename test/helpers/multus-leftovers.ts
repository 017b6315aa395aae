import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonObject } from "../../lib/base/json.ts";
import type { Lab, Place } from "./lab.ts";
import { mustRunPlugin } from "./plugin-call.ts";

/** One delegate of a sandbox: a plugin configuration with its name, and what Multus was asked for. */
export interface Delegate {
  /** As a selection names it. */
  readonly name: string;
  readonly config: JsonObject & { readonly name: string; readonly type: string };
  readonly ifnameRequest?: string;
}

/** Where one release of Multus keeps what the CNI library remembers. */
export type MultusRelease = "thin-3" | "thick-4";

/**
 * A Multus that attached sandboxes and is gone: real attachments, made by the reference executables, and the files that it leaves: a list of delegates
 * a container, and the CNI library's results.
 */
export class MultusLeftovers {
  /** Its `cniDir`. */
  readonly cacheDir: string;
  /** The CNI library's own folder. */
  readonly libraryDir: string;
  readonly #node: Place;
  readonly #bin: string;

  constructor(lab: Lab, node: Place, bin: string) {
    const folder = lab.folder();
    this.cacheDir = join(folder, "multus");
    this.libraryDir = join(folder, "cni");
    this.#node = node;
    this.#bin = bin;
    mkdirSync(this.cacheDir);
    mkdirSync(this.libraryDir);
  }

  /** Keys of podnetd's configuration that lead it here. */
  get config(): { readonly multusCacheDir: string; readonly cniCacheDir: string } {
    return { multusCacheDir: this.cacheDir, cniCacheDir: this.libraryDir };
  }

  /** Attaches delegates in order as Multus does it, the file first. */
  async attach(
    { id: containerId, netns }: { readonly id: string; readonly netns: string },
    delegates: readonly Delegate[],
    release: MultusRelease = "thick-4",
  ): Promise<void> {
    this.write(containerId, JSON.stringify(delegates.map(entryOf)));
    for (const [index, delegate] of delegates.entries()) {
      const ifName = delegate.ifnameRequest ?? (index === 0 ? "eth0" : `net${index}`);
      const { config } = delegate;
      const result = await this.run("ADD", { containerId, netns, ifName, config });
      this.writeResult(release, { containerId, netns, ifName, config, result });
    }
  }

  /** The reference executable of a configuration, as a runtime calls it. */
  async run(
    verb: string,
    call: {
      readonly containerId: string;
      readonly netns: string;
      readonly ifName: string;
      readonly config: Delegate["config"];
    },
  ): Promise<JsonObject> {
    return await mustRunPlugin({
      verb,
      ...call,
      program: join(this.#bin, call.config.type),
      node: this.#node,
      path: this.#bin,
      args: "IgnoreUnknown=true;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=old",
    });
  }

  write(containerId: string, content: string | Uint8Array): void {
    writeFileSync(join(this.cacheDir, containerId), content, { mode: 0o600 });
  }

  writeResult(
    release: MultusRelease,
    of: {
      readonly containerId: string;
      readonly netns: string;
      readonly ifName: string;
      readonly config: Delegate["config"];
      readonly result: JsonObject;
    },
  ): void {
    const folder = join(release === "thin-3" ? this.libraryDir : this.cacheDir, "results");
    mkdirSync(folder, { recursive: true });
    const info = {
      kind: "cniCacheV1",
      containerId: of.containerId,
      config: Buffer.from(JSON.stringify(of.config)).toString("base64"),
      ifName: of.ifName,
      networkName: of.config.name,
      cniArgs: [["IgnoreUnknown", "true"]],
      capabilityArgs: {},
      result: of.result,
    };
    const name = `${of.config.name}-${of.containerId}-${of.ifName}`;
    writeFileSync(join(folder, name), JSON.stringify(info), { mode: 0o600 });
  }

  /** Files that are left, of any container. */
  files(): string[] {
    const list = (folder: string): string[] =>
      existsSync(folder) ? readdirSync(folder).map((name) => name) : [];
    const own = list(this.cacheDir).filter((name) => name !== "results");
    const results = [this.cacheDir, this.libraryDir].flatMap((dir) => list(join(dir, "results")));
    return [...own, ...results].toSorted();
  }
}

/** Go's encoding of Multus' DelegateNetConf: zero values and all. */
function entryOf({ name, config, ifnameRequest }: Delegate): JsonObject {
  const { cniVersion = "", type } = config;
  return {
    Conf: { cniVersion, name: config.name, type, ipam: { type: "host-local" }, dns: {} },
    ConfList: { plugins: null },
    Name: name,
    ...(ifnameRequest === undefined ? {} : { ifnameRequest }),
    IsFilterV4Gateway: false,
    IsFilterV6Gateway: false,
    Bytes: Buffer.from(JSON.stringify(config)).toString("base64"),
  };
}
