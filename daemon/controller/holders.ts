import { isJsonObject } from "../../lib/base/json.ts";
import { isNotFound } from "../../lib/kube/error.ts";
import { keyText, type ObjectKey, objectPath, resources } from "../../lib/kube/resource.ts";
import type { ControllerContext } from "./context.ts";
import type { KeptAttachment } from "./kept-objects.ts";
import { isFinished, type KeptPod, keepPod } from "./kept-pods.ts";

/** Who has the fixed addresses of an attachment. */
export interface Claim {
  /** The pod's name; undefined: nobody. */
  readonly holder?: string;
  /** Another pod that has a node and waits, the first by name. */
  readonly waiting?: string;
  /** The holder is gone for good: what is written of it is to be removed. */
  readonly release: boolean;
}

/** The holder of an attachment is written by the node that attaches the pod; here it is read, and removed when the pod is gone. */
export class Holders {
  readonly #context: Pick<ControllerContext, "client" | "stores" | "users">;

  constructor(context: Pick<ControllerContext, "client" | "stores" | "users">) {
    this.#context = context;
  }

  /** Rejects with a KubeError when it can't be told whether the holder is there. */
  async look(key: ObjectKey, { holder }: KeptAttachment, signal: AbortSignal): Promise<Claim> {
    if (holder === undefined) return { release: false };
    const { namespace } = key;
    const known = this.#context.stores.pods.get({ namespace, name: holder.name });
    // The pod may be too new for the watch: only the API itself can say that there is none.
    const pod = has(known, holder.uid) ? known : await this.#ask(namespace, holder.name, signal);
    if (!has(pod, holder.uid)) return { release: true };
    const waiting = this.#waiting(key, holder.name);
    return {
      holder: holder.name,
      ...(waiting === undefined ? {} : { waiting }),
      release: false,
    };
  }

  #waiting(key: ObjectKey, holder: string): string | undefined {
    const { stores, users } = this.#context;
    const names = [...users.podsOfAttachment(keyText(key))].map((text) => text.split("/")[1] ?? "");
    return names
      .filter((name) => {
        const pod = stores.pods.get({ namespace: key.namespace, name });
        return name !== holder && pod !== undefined && pod.nodeName !== "";
      })
      .toSorted()[0];
  }

  async #ask(namespace: string, name: string, signal: AbortSignal): Promise<KeptPod | undefined> {
    try {
      const path = objectPath(resources.wholePods, { namespace, name });
      const object = await this.#context.client.request({ path, signal });
      return isJsonObject(object) ? keepPod(object) : undefined;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }
}

/** Whether it is that pod, and one that may use an address. */
function has(pod: KeptPod | undefined, uid: string): boolean {
  return pod !== undefined && pod.uid === uid && !isFinished(pod);
}
