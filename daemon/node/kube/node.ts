import { keepNamespace } from "../../../lib/api/kept.ts";
import type { ObjectMeta } from "../../../lib/api/objects.ts";
import type { Log } from "../../../lib/base/log.ts";
import { KubeClient } from "../../../lib/kube/client.ts";
import { Credentials } from "../../../lib/kube/credentials.ts";
import { resources } from "../../../lib/kube/resource.ts";
import { attachRightFault } from "../attach-right.ts";
import { Lookup } from "./lookup.ts";
import { KubeNetworks } from "./networks.ts";
import { KubePods } from "./pods.ts";
import { KubeSelf } from "./self.ts";

export interface KubeOptions {
  /** Path of a kubeconfig file, or `in-cluster`. */
  readonly kubeconfig: string;
  readonly nodeName: string;
  /** The node's own CNI configurations. */
  readonly cniConfDir: string;
  readonly log: Log;
}

/** How one of the watches is doing. */
export interface WatchState {
  readonly kind: string;
  /** A watch is open now. */
  readonly current: boolean;
  /** Seconds since the server last said anything; undefined: never. */
  readonly age: number | undefined;
  readonly objects: number;
}

/** The cluster as this node sees it. Nothing is waited for at its start: what is not known yet is asked for when it is needed. */
export class KubeNode implements AsyncDisposable {
  readonly client: KubeClient;
  readonly self: KubeSelf;
  readonly networks: KubeNetworks;
  readonly pods: KubePods;
  readonly #namespaces: Lookup<ObjectMeta>;

  constructor({ kubeconfig, nodeName, cniConfDir, log }: KubeOptions) {
    this.client = new KubeClient(
      new Credentials(kubeconfig === "in-cluster" ? undefined : kubeconfig),
    );
    this.self = new KubeSelf(this.client, nodeName);
    this.networks = new KubeNetworks(this.self, cniConfDir, log);
    this.pods = new KubePods(this.client, { nodeName, log });
    this.#namespaces = new Lookup({
      client: this.client,
      resource: resources.namespaces,
      log,
      keep: keepNamespace,
    });
  }

  /** Labels and annotations of a namespace; undefined: there is none. Rejects with code 11 when nobody can tell. */
  async namespace(name: string): Promise<ObjectMeta | undefined> {
    return await this.#namespaces.find({ namespace: "", name });
  }

  /** Why the pod that CNI_ARGS name may not be attached to a PodNetwork that asks for the right to; rejects as `attachRightFault`. */
  async attachFault(
    args: ReadonlyMap<string, string>,
    network: string,
  ): Promise<string | undefined> {
    return await attachRightFault(this.client, args, network);
  }

  watches(): WatchState[] {
    const { podNetworks, attachments, nads } = this.networks;
    const named = {
      Pod: this.pods.lookup,
      PodNetwork: podNetworks,
      PodNetworkAttachment: attachments,
      NetworkAttachmentDefinition: nads,
      Namespace: this.#namespaces,
    };
    return Object.entries(named).map(([kind, { reflector }]) => ({
      kind,
      current: reflector.current,
      age: reflector.contact === 0 ? undefined : (performance.now() - reflector.contact) / 1000,
      objects: reflector.size,
    }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const parts = [this.networks, this.pods, this.#namespaces];
    await Promise.all(parts.map((part) => part[Symbol.asyncDispose]()));
    await this.client.close();
  }
}
