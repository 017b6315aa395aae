import { keepNamespace } from "../../lib/api/kept.ts";
import type { ObjectMeta } from "../../lib/api/objects.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { Log } from "../../lib/base/log.ts";
import type { KubeClient } from "../../lib/kube/client.ts";
import { Reflector } from "../../lib/kube/reflector.ts";
import { type ObjectKey, type Resource, resources } from "../../lib/kube/resource.ts";
import {
  type KeptAttachment,
  type KeptNad,
  type KeptNetwork,
  keepNad,
  keepPodNetwork,
  keepPodNetworkAttachment,
} from "./kept-objects.ts";
import { type KeptPod, keepPod } from "./kept-pods.ts";

/** The kinds that are watched, and what is kept of each. */
export interface StoreTypes {
  readonly networks: KeptNetwork;
  readonly attachments: KeptAttachment;
  readonly pods: KeptPod;
  readonly namespaces: ObjectMeta;
  readonly nads: KeptNad;
}

/** An object came (`before` undefined), changed, or went (`value` undefined). Called after the store has changed; must not throw. */
type Changed<T> = (key: ObjectKey, value: T | undefined, before: T | undefined) => void;

export type StoreListener = { readonly [K in keyof StoreTypes]?: Changed<StoreTypes[K]> };

/** How one of the watches is doing; as podnetd's. */
export interface WatchState {
  readonly kind: string;
  readonly current: boolean;
  /** Seconds since the server last said anything; undefined: never. */
  readonly age: number | undefined;
  readonly objects: number;
}

/** Watched copies of everything that the controller decides by, in every replica. */
export class Stores implements AsyncDisposable {
  readonly networks: Reflector<KeptNetwork>;
  readonly attachments: Reflector<KeptAttachment>;
  readonly pods: Reflector<KeptPod>;
  readonly namespaces: Reflector<ObjectMeta>;
  readonly nads: Reflector<KeptNad>;
  readonly #listeners = new Set<StoreListener>();

  constructor(client: KubeClient, log: Log) {
    const open = <K extends keyof StoreTypes>(
      name: K,
      resource: Resource,
      keep: (object: JsonObject) => StoreTypes[K],
    ): Reflector<StoreTypes[K]> => {
      const onChange: Changed<StoreTypes[K]> = (key, value, before) => {
        for (const listener of this.#listeners) listener[name]?.(key, value, before);
      };
      return new Reflector({ client, log, resource, keep, onChange });
    };
    this.networks = open("networks", resources.podNetworks, keepPodNetwork);
    this.attachments = open(
      "attachments",
      resources.podNetworkAttachments,
      keepPodNetworkAttachment,
    );
    this.pods = open("pods", resources.wholePods, keepPod);
    this.namespaces = open("namespaces", resources.namespaces, keepNamespace);
    this.nads = open("nads", resources.nads, keepNad);
  }

  /** Told of every change until the subscription is disposed of. */
  subscribe(listener: StoreListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  start(): void {
    for (const { reflector } of this.#all()) reflector.start();
  }

  /** Every kind was listed once. */
  get synced(): boolean {
    return this.#all().every(({ reflector }) => reflector.synced);
  }

  async ready(): Promise<void> {
    await Promise.all(this.#all().map(({ reflector }) => reflector.ready()));
  }

  watches(): WatchState[] {
    return this.#all().map(({ kind, reflector }) => ({
      kind,
      current: reflector.current,
      age: reflector.contact === 0 ? undefined : (performance.now() - reflector.contact) / 1000,
      objects: reflector.size,
    }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#all().map(({ reflector }) => reflector.stop()));
  }

  #all() {
    return [
      { kind: "PodNetwork", reflector: this.networks },
      { kind: "PodNetworkAttachment", reflector: this.attachments },
      { kind: "Pod", reflector: this.pods },
      { kind: "Namespace", reflector: this.namespaces },
      { kind: "NetworkAttachmentDefinition", reflector: this.nads },
    ] as const;
  }
}
