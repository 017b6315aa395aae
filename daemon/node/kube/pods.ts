import type { Log } from "../../../lib/base/log.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import { type ObjectKey, resources } from "../../../lib/kube/resource.ts";
import { podOf } from "../pods.ts";
import { isSame, type KubePod, keepPod } from "./kept-pod.ts";
import { Lookup } from "./lookup.ts";

/** Pods of this node. */
export class KubePods implements AsyncDisposable {
  readonly lookup: Lookup<KubePod>;

  constructor(
    client: KubeClient,
    options: {
      readonly nodeName: string;
      readonly log: Log;
      readonly onChange?: (key: ObjectKey, pod: KubePod | undefined) => void;
    },
  ) {
    const { nodeName, log, onChange } = options;
    this.lookup = new Lookup({
      client,
      log,
      resource: resources.pods,
      keep: keepPod,
      fieldSelector: `spec.nodeName=${nodeName}`,
      ...(onChange === undefined ? {} : { onChange }),
    });
  }

  /**
   * The annotations of the pod that CNI_ARGS name; undefined when they name none. Rejects with code 11 when the pod is gone, another
   * one has its name by now, or nobody can tell.
   */
  async annotations(
    args: ReadonlyMap<string, string>,
  ): Promise<Readonly<Record<string, string>> | undefined> {
    const { namespace, name, uid } = podOf(args);
    if (namespace === undefined || name === undefined) return undefined;
    const key = { namespace, name };
    const known = await this.lookup.find(key);
    if (known !== undefined && isSame(known, uid)) return known.annotations;
    // The copy may be of the pod before this one.
    const live = await this.lookup.findNew(key, (pod) => isSame(pod, uid));
    if (live !== undefined && isSame(live, uid)) return live.annotations;
    throw gone(key, uid, live);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.lookup[Symbol.asyncDispose]();
  }
}

function gone(key: ObjectKey, uid: string | undefined, live: KubePod | undefined): CniError {
  const what = `attach pod "${key.namespace}/${key.name}"`;
  const message =
    live === undefined
      ? `${what}: the API server has no such pod: it was deleted, or the mirror of a static pod is not there yet`
      : `${what}: its uid is "${live.uid}", and the runtime asks for "${uid}": that pod was deleted`;
  return new CniError(cniCode.tryAgainLater, message);
}
