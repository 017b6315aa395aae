import {
  decodeNad,
  decodePodNetwork,
  decodePodNetworkAttachment,
} from "../../../lib/api/decode-objects.ts";
import { type Holder, readHolder } from "../../../lib/api/holder.ts";
import { type Kept, keeper } from "../../../lib/api/kept.ts";
import { apiGroup } from "../../../lib/api/names.ts";
import type { Nad, PodNetwork, PodNetworkAttachment } from "../../../lib/api/objects.ts";
import type { NetworkRef } from "../../../lib/api/selection.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import type { Log } from "../../../lib/base/log.ts";
import { findConflist } from "../../../lib/cni/conf-dir.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import { resources } from "../../../lib/kube/resource.ts";
import { type KnownNetwork, type NetworkSource, title } from "../networks.ts";
import { Lookup } from "./lookup.ts";
import type { KubeSelf } from "./self.ts";

/** An attachment, and the pod that has its fixed addresses. */
type KeptAttachment = Kept<PodNetworkAttachment> & { readonly holder?: Holder };

/** Networks of a cluster, from its API. */
export class KubeNetworks implements NetworkSource, AsyncDisposable {
  readonly podNetworks: Lookup<Kept<PodNetwork>>;
  readonly attachments: Lookup<KeptAttachment>;
  readonly nads: Lookup<Kept<Nad>>;
  readonly #confDir: string;
  readonly #node: KubeSelf;

  constructor(node: KubeSelf, confDir: string, log: Log) {
    const { client } = node;
    const base = { client, log };
    this.#confDir = confDir;
    this.#node = node;
    this.podNetworks = new Lookup({ ...base, resource: resources.podNetworks, keep: keepNetwork });
    this.attachments = new Lookup({
      ...base,
      resource: resources.podNetworkAttachments,
      keep: keepAttachment,
    });
    this.nads = new Lookup({ ...base, resource: resources.nads, keep: keeper(decodeNad) });
  }

  async podNetwork(name: string): Promise<PodNetwork | undefined> {
    const kept = await this.podNetworks.find({ namespace: "", name });
    return usable(kept, { kind: "podNetwork", name });
  }

  async podNetworkAttachment(
    namespace: string,
    name: string,
  ): Promise<PodNetworkAttachment | undefined> {
    const kept = await this.attachments.find({ namespace, name });
    return usable(kept, { kind: "podNetworkAttachment", namespace, name });
  }

  async nad(namespace: string, name: string): Promise<Nad | undefined> {
    return usable(await this.nads.find({ namespace, name }), { kind: "nad", namespace, name });
  }

  async conflist(name: string): Promise<Conflist | undefined> {
    return await findConflist(this.#confDir, name);
  }

  /** PodNetworks only: what GC goes through must be the admin's own, and few. */
  async list(): Promise<readonly KnownNetwork[]> {
    return this.podNetworks.reflector.entries().map(({ key, value }) => ({
      ref: { kind: "podNetwork", name: key.name },
      file: apiGroup,
      ...(value.fault === undefined ? {} : { fault: value.fault }),
    }));
  }

  async extra(): Promise<readonly NetworkRef[]> {
    return this.nads.reflector.entries().map(({ key }) => ({ kind: "nad", ...key }));
  }

  async podCidrs(): Promise<readonly string[]> {
    return await this.#node.podCidrs();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const all = [this.podNetworks, this.attachments, this.nads];
    await Promise.all(all.map((one) => one[Symbol.asyncDispose]()));
  }
}

function usable<T>(kept: Kept<T> | undefined, ref: NetworkRef): T | undefined {
  if (kept?.fault === undefined) return kept?.object;
  const code = ref.kind === "nad" ? cniCode.nadMissing : cniCode.podNetworkNotReady;
  throw new CniError(code, `${title(ref)} can't be used: ${kept.fault}`);
}

const keepAttachmentObject = keeper(decodePodNetworkAttachment);

function keepAttachment(object: JsonObject): KeptAttachment {
  const holder = readHolder(object);
  return { ...keepAttachmentObject(object), ...(holder === undefined ? {} : { holder }) };
}

/** Also of a network that is said not to be ready. */
function keepNetwork(object: JsonObject): Kept<PodNetwork> {
  const kept = keeper(decodePodNetwork)(object);
  if (kept.fault !== undefined || kept.object?.spec.enabled === false) return kept;
  const fault = notReady(object["status"]);
  return fault === undefined ? kept : { ...kept, fault };
}

/** Condition Ready, where it is False: `not ready: ParamsNotReady: ...` */
function notReady(status: unknown): string | undefined {
  const conditions = isJsonObject(status) ? status["conditions"] : undefined;
  if (!Array.isArray(conditions)) return undefined;
  for (const one of conditions as readonly unknown[]) {
    if (!isJsonObject(one) || one["type"] !== "Ready" || one["status"] !== "False") continue;
    const why = [one["reason"], one["message"]].filter(
      (text) => typeof text === "string" && text !== "",
    );
    return ["not ready", ...why].join(": ").slice(0, 500);
  }
  return undefined;
}
