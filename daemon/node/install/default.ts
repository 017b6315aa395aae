import { readdirSync, statSync } from "node:fs";
import { extname, join } from "node:path";
import { defaultNetworkName, providers } from "../../../lib/api/names.ts";
import type { PodNetwork } from "../../../lib/api/objects.ts";
import { errorCode, errorText } from "../../../lib/base/errors.ts";
import { confExtensions, readConflist } from "../../../lib/cni/conf-dir.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { NetworkSource } from "../networks.ts";
import {
  anyConflist,
  type ConfFile,
  chooseDefault,
  type NodeChoice,
  noConflist,
} from "./choice.ts";

/** What is configured about the node's own default network. */
export interface NodeDefaultConfig {
  readonly cniConfDir: string;
  readonly install: boolean | "remove";
  readonly defaultConflist?: string | undefined;
  readonly requireDefaultPodNetwork: boolean;
}

/** The node's own default network: one of its CNI configurations. Remembers what files said when they were whole. */
export class NodeDefault {
  readonly #dir: string;
  readonly #wanted: string;
  readonly #before = new Map<string, Conflist>();

  constructor(dir: string, wanted: string) {
    this.#dir = dir;
    this.#wanted = wanted;
  }

  /** Looks at the directory. Rejects when it can't be read. */
  async choose(): Promise<NodeChoice> {
    return chooseDefault(await this.files(), this.#wanted);
  }

  /** Every configuration file of the directory, in the order of their names. */
  async files(): Promise<readonly ConfFile[]> {
    const names = confFileNames(this.#dir);
    for (const name of this.#before.keys()) if (!names.includes(name)) this.#before.delete(name);
    return await Promise.all(names.map((name) => this.#read(name)));
  }

  async #read(file: string): Promise<ConfFile> {
    const path = join(this.#dir, file);
    const before = this.#before.get(file);
    // A moment to come is that of a clock which was put back since: as long ago as it is to come, as far as anybody knows.
    const age = Math.abs(Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0));
    const base = { file, age, ...(before === undefined ? {} : { before }) };
    try {
      const list = await readConflist(path);
      this.#before.set(file, list);
      return { ...base, list };
    } catch (error) {
      return { ...base, fault: errorText(error) };
    }
  }
}

/** Names of the files that a runtime would read, in its order. A directory that does not exist has none. */
export function confFileNames(dir: string): readonly string[] {
  try {
    return readdirSync(dir, { withFileTypes: true })
      .filter((entry) => !entry.isDirectory() && confExtensions.includes(extname(entry.name)))
      .map(({ name }) => name)
      .sort();
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw error;
  }
}

/** What is configured, with what it means where nothing is said. */
export function wantedDefault({ install, defaultConflist }: NodeDefaultConfig): string {
  return defaultConflist ?? (install === false ? noConflist : anyConflist);
}

/**
 * `source` with the node's own default network in it: a PodNetwork "default" that is missing, or has no parameters, is one of provider
 * podnet.dev/conflist, and the configuration that such a one means is the node's, where none is named "default".
 */
export function withNodeDefault(source: NetworkSource, config: NodeDefaultConfig): NetworkSource {
  const wanted = wantedDefault(config);
  if (wanted === noConflist) return source;
  const own = new NodeDefault(config.cniConfDir, wanted);
  return {
    podNetwork: async (name) => {
      const found = await source.podNetwork(name);
      if (name !== defaultNetworkName) return found;
      if (found !== undefined) return isEmpty(found) ? meaningConflist(found) : found;
      return config.requireDefaultPodNetwork ? undefined : impliedDefault;
    },
    conflist: async (name) =>
      name === defaultNetworkName ? await nodeConflist(source, own) : await source.conflist(name),
    podNetworkAttachment: (namespace, name) => source.podNetworkAttachment(namespace, name),
    nad: (namespace, name) => source.nad(namespace, name),
    // Without the implied one: garbage of a network that others attach to as well is the runtime's to name.
    list: () => source.list(),
    ...(source.podCidrs === undefined ? {} : { podCidrs: source.podCidrs.bind(source) }),
    ...(source.unreadable === undefined ? {} : { unreadable: source.unreadable.bind(source) }),
  };
}

const impliedDefault: PodNetwork = {
  kind: "PodNetwork",
  metadata: { name: defaultNetworkName, labels: {}, annotations: {} },
  spec: { enabled: true, provider: providers.conflist, parametersRefs: [] },
};

/** A default network without any parameters, as the controller makes it, says that there is one, not what it is. */
function isEmpty({ spec: { provider, parameters, parametersRefs } }: PodNetwork): boolean {
  return provider === providers.cni && parameters === undefined && parametersRefs.length === 0;
}

function meaningConflist(network: PodNetwork): PodNetwork {
  return { ...network, spec: { ...network.spec, provider: providers.conflist } };
}

async function nodeConflist(source: NetworkSource, own: NodeDefault): Promise<Conflist> {
  const named = await source.conflist(defaultNetworkName).catch(() => undefined);
  if (named !== undefined) return named;
  const choice = await own.choose();
  if (choice.kind === "found") return choice.list;
  throw new CniError(
    cniCode.tryAgainLater,
    `the node's own network configuration: ${choice.reason}`,
  );
}
