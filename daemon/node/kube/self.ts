import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type Json } from "../../../lib/base/json.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import { objectPath, resources } from "../../../lib/kube/resource.ts";

/** This node in its cluster: its name, and what of its Node object is ever needed. */
export class KubeSelf {
  readonly client: KubeClient;
  readonly name: string;
  #podCidrs: readonly string[] | undefined;

  constructor(client: KubeClient, name: string) {
    this.client = client;
    this.name = name;
  }

  /**
   * `spec.podCIDRs` of the Node. Asked for when it is needed first, and kept: it never changes once it is set. Rejects with code 11 when
   * the API server can't be asked, or has not set any yet.
   */
  async podCidrs(): Promise<readonly string[]> {
    if (this.#podCidrs !== undefined) return this.#podCidrs;
    const key = { namespace: "", name: this.name };
    let found: readonly string[];
    try {
      found = cidrsOf(await this.client.request({ path: objectPath(resources.nodes, key) }));
    } catch (error) {
      const message = `read podCIDRs of node "${this.name}": ${errorText(error)}`;
      throw new CniError(cniCode.tryAgainLater, message, { cause: error });
    }
    if (found.length === 0) {
      const message = `node "${this.name}" has no podCIDRs: the controller manager sets them with --allocate-node-cidrs`;
      throw new CniError(cniCode.tryAgainLater, message);
    }
    this.#podCidrs = found;
    return found;
  }
}

function cidrsOf(node: unknown): readonly string[] {
  const spec = isJsonObject(node) ? node["spec"] : undefined;
  if (!isJsonObject(spec)) return [];
  const { podCIDRs, podCIDR } = spec;
  const list = Array.isArray(podCIDRs) ? (podCIDRs as readonly Json[]) : [podCIDR];
  return list.filter((one): one is string => typeof one === "string" && one !== "");
}
