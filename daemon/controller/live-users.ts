import { listPages } from "../../lib/kube/list.ts";
import { keyOf } from "../../lib/kube/reflector.ts";
import { keyText, resources } from "../../lib/kube/resource.ts";
import type { ControllerContext } from "./context.ts";
import { keepPodNetworkAttachment } from "./kept-objects.ts";
import { type KeptPod, keepPod } from "./kept-pods.ts";
import { holdsDeleted, type PodRefs } from "./pod-refs.ts";

/** Who uses what by the API's own word at one moment. */
interface Snapshot {
  readonly pods: readonly { readonly pod: KeptPod; readonly refs: PodRefs }[];
  /** Attachments by their network. */
  readonly networks: ReadonlySet<string>;
  /** `namespace/name` of an attachment to its network. */
  readonly networkOf: ReadonlyMap<string, string>;
}

/**
 * Asks the API itself who uses a network, past the watched copies, which may lag behind: for the one decision that can't be taken
 * back. Questions that come while one is being answered share the next answer.
 */
export class LiveUsers {
  readonly #context: Pick<ControllerContext, "client" | "users">;
  #reading: Promise<unknown> | undefined;
  #next: Promise<Snapshot> | undefined;

  constructor(context: Pick<ControllerContext, "client" | "users">) {
    this.#context = context;
  }

  /** Whether a network that was deleted at that time still has users. Rejects with a KubeError when nobody can tell. */
  async usesNetwork(name: string, deleted: string, signal: AbortSignal): Promise<boolean> {
    const { pods, networks, networkOf } = await this.#snapshot(signal);
    if (networks.has(name)) return true;
    return pods.some(
      ({ pod, refs }) =>
        (refs.networks.includes(name) ||
          refs.attachments.some((key) => networkOf.get(key) === name)) &&
        holdsDeleted(pod, deleted),
    );
  }

  /** The same of an attachment (`namespace/name`). */
  async usesAttachment(key: string, deleted: string, signal: AbortSignal): Promise<boolean> {
    const { pods } = await this.#snapshot(signal);
    return pods.some(
      ({ pod, refs }) => refs.attachments.includes(key) && holdsDeleted(pod, deleted),
    );
  }

  /** A snapshot that was begun after the call. */
  async #snapshot(signal: AbortSignal): Promise<Snapshot> {
    if (this.#next === undefined) {
      const before = this.#reading ?? Promise.resolve();
      const next = before
        .catch(() => undefined)
        .then(() => {
          this.#next = undefined;
          const reading = this.#read(signal);
          this.#reading = reading;
          return reading;
        });
      this.#next = next;
    }
    return await this.#next;
  }

  async #read(signal: AbortSignal): Promise<Snapshot> {
    const { client, users } = this.#context;
    const pods: { pod: KeptPod; refs: PodRefs }[] = [];
    for await (const { items } of listPages(client, resources.wholePods, { signal })) {
      for (const item of items) {
        const pod = keepPod(item);
        const refs = users.refsOf(pod, keyOf(item)?.namespace ?? "");
        if (refs.networks.length + refs.attachments.length > 0) pods.push({ pod, refs });
      }
    }
    const networkOf = await this.#networkOf(signal);
    return { pods, networks: new Set(networkOf.values()), networkOf };
  }

  async #networkOf(signal: AbortSignal): Promise<Map<string, string>> {
    const { client } = this.#context;
    const networkOf = new Map<string, string>();
    const pages = listPages(client, resources.podNetworkAttachments, { signal });
    for await (const { items } of pages) {
      for (const item of items) {
        const network = keepPodNetworkAttachment(item).object?.spec.podNetworkName;
        const key = keyOf(item);
        if (network !== undefined && key !== undefined) networkOf.set(keyText(key), network);
      }
    }
    return networkOf;
  }
}
