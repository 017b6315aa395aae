import { annotations } from "../../lib/api/names.ts";
import type { ObjectMeta } from "../../lib/api/objects.ts";
import { keyText, type ObjectKey } from "../../lib/kube/resource.ts";
import type { KeptAttachment } from "./kept-objects.ts";
import type { KeptPod } from "./kept-pods.ts";
import { holdsDeleted, type PodRefs, podRefs } from "./pod-refs.ts";
import type { Stores } from "./stores.ts";

/** Whose users changed, or something about them that decides whether they hold it. */
export interface UsersListener {
  readonly network: (name: string) => void;
  /** `namespace/name` */
  readonly attachment: (key: string) => void;
}

const nothing: ReadonlySet<string> = new Set();

/**
 * Who uses which PodNetwork and PodNetworkAttachment, kept up to date by what the stores say. It is asked all the time, so it answers
 * without going through the pods.
 */
export class Users implements Disposable {
  readonly #stores: Stores;
  readonly #refs = new Map<string, PodRefs>();
  readonly #podsOfNetwork = new Map<string, Set<string>>();
  readonly #podsOfAttachment = new Map<string, Set<string>>();
  readonly #attachmentsOfNetwork = new Map<string, Set<string>>();
  readonly #listeners = new Set<UsersListener>();
  readonly #subscription: Disposable;

  constructor(stores: Stores) {
    this.#stores = stores;
    this.#subscription = stores.subscribe({
      pods: (key, pod) => this.#pod(key, pod),
      attachments: (key, value, before) => this.#attachment(key, value, before),
      namespaces: (key, value, before) => this.#namespace(key, value, before),
    });
  }

  subscribe(listener: UsersListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  /** Pods (`namespace/name`) that refer to the network by its name, or run on it. */
  podsOfNetwork(name: string): ReadonlySet<string> {
    return this.#podsOfNetwork.get(name) ?? nothing;
  }

  /** Pods that refer to the attachment. */
  podsOfAttachment(key: string): ReadonlySet<string> {
    return this.#podsOfAttachment.get(key) ?? nothing;
  }

  /** Pods that refer to the network by its name or through an attachment, or run on it. */
  allPodsOfNetwork(name: string): ReadonlySet<string> {
    const attachments = this.attachmentsOfNetwork(name);
    if (attachments.size === 0) return this.podsOfNetwork(name);
    const through = [...attachments].flatMap((key) => [...this.podsOfAttachment(key)]);
    return new Set([...this.podsOfNetwork(name), ...through]);
  }

  /** Those of the pods that keep what they refer to from going since it was deleted (RFC 3339). */
  holding(pods: Iterable<string>, deleted: string): string[] {
    return [...pods].filter((key) => {
      const [namespace = "", name = ""] = key.split("/");
      const pod = this.#stores.pods.get({ namespace, name });
      return pod !== undefined && holdsDeleted(pod, deleted);
    });
  }

  /** Attachments of the network. */
  attachmentsOfNetwork(name: string): ReadonlySet<string> {
    return this.#attachmentsOfNetwork.get(name) ?? nothing;
  }

  /** What a pod refers to. */
  refsOf(pod: KeptPod, namespace: string): PodRefs {
    return podRefs(pod, namespace, this.#defaultOf(namespace));
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }

  #defaultOf(namespace: string): string | undefined {
    return namespaceDefault(this.#stores.namespaces.get({ namespace: "", name: namespace }));
  }

  #pod(key: ObjectKey, pod: KeptPod | undefined): void {
    const text = keyText(key);
    const before = this.#refs.get(text);
    const now = pod === undefined ? undefined : this.refsOf(pod, key.namespace);
    const isNone = now === undefined || now.networks.length + now.attachments.length === 0;
    if (isNone) this.#refs.delete(text);
    else this.#refs.set(text, now);
    const networks = { pods: this.#podsOfNetwork, before: before?.networks, now: now?.networks };
    const attachments = {
      pods: this.#podsOfAttachment,
      before: before?.attachments,
      now: now?.attachments,
    };
    for (const name of move(text, networks)) this.#tell("network", name);
    for (const name of move(text, attachments)) this.#tell("attachment", name);
  }

  #attachment(
    key: ObjectKey,
    value: KeptAttachment | undefined,
    before: KeptAttachment | undefined,
  ): void {
    const networkOf = (kept: KeptAttachment | undefined) => {
      const name = kept?.object?.spec.podNetworkName;
      return name === undefined ? [] : [name];
    };
    const change = { before: networkOf(before), now: networkOf(value) };
    const affected = move(keyText(key), { pods: this.#attachmentsOfNetwork, ...change });
    for (const name of affected) this.#tell("network", name);
  }

  /** Its pods without a list of their own may be on another network now. */
  #namespace(
    { name }: ObjectKey,
    value: ObjectMeta | undefined,
    before: ObjectMeta | undefined,
  ): void {
    if (namespaceDefault(value) === namespaceDefault(before)) return;
    for (const { key, value: pod } of this.#stores.pods.entries()) {
      if (key.namespace === name) this.#pod(key, pod);
    }
  }

  #tell(what: keyof UsersListener, name: string): void {
    for (const listener of this.#listeners) listener[what](name);
  }
}

/** The default network that a namespace names for its pods; undefined: none of its own. */
export function namespaceDefault(namespace: ObjectMeta | undefined): string | undefined {
  return namespace?.annotations[annotations.defaultNetwork]?.trim() || undefined;
}

interface Move {
  readonly pods: Map<string, Set<string>>;
  readonly before: readonly string[] | undefined;
  readonly now: readonly string[] | undefined;
}

/** Puts a user where it belongs now; gives every name that it belongs or belonged to. */
function move(user: string, { pods, before = [], now = [] }: Move): Set<string> {
  for (const name of before) {
    if (now.includes(name)) continue;
    const users = pods.get(name);
    users?.delete(user);
    if (users?.size === 0) pods.delete(name);
  }
  for (const name of now) {
    const users = pods.get(name) ?? new Set();
    users.add(user);
    pods.set(name, users);
  }
  return new Set([...before, ...now]);
}
