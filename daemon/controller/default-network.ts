import { apiVersion, defaultNetworkName, kinds } from "../../lib/api/names.ts";
import { isJsonObject, type Json } from "../../lib/base/json.ts";
import { isConflict } from "../../lib/kube/error.ts";
import { listPath, resources } from "../../lib/kube/resource.ts";
import type { ControllerContext, LeaderPart } from "./context.ts";
import { reconcile } from "./reconcile.ts";

/** On the default network: the families of the cluster's pods. For people and tools; nothing is decided by it. */
const familiesAnnotation = "podnet.dev/ip-families";
/** Nodes that are asked for their podCIDRs. */
const nodesAsked = "50";

/** Makes the PodNetwork "default" where there is none, at the start and whenever it goes (spec A.6). */
export class DefaultNetwork implements LeaderPart {
  readonly name = "default";
  readonly #context: ControllerContext;

  constructor(context: ControllerContext) {
    this.#context = context;
  }

  async lead(signal: AbortSignal): Promise<void> {
    const { stores, config } = this.#context;
    if (!config.createDefault) return;
    await reconcile(
      this.#context,
      {
        name: this.name,
        all: () => [defaultNetworkName],
        watch: (add) => [
          stores.subscribe({
            networks: ({ name }, value) => {
              if (name === defaultNetworkName && value === undefined) add(name);
            },
          }),
        ],
        work: (_, until) => this.#work(until),
      },
      signal,
    );
  }

  async #work(signal: AbortSignal): Promise<undefined> {
    const { stores, client, metrics, log } = this.#context;
    if (stores.networks.get({ namespace: "", name: defaultNetworkName }) !== undefined) return;
    const families = await this.#families(signal);
    const annotations =
      families.length === 0
        ? {}
        : { [familiesAnnotation]: families.map((one) => `IPv${one}`).join(",") };
    const body = {
      apiVersion,
      kind: kinds.podNetwork,
      metadata: { name: defaultNetworkName, annotations },
      spec: { enabled: true },
    };
    try {
      const path = listPath(resources.podNetworks);
      await client.request({ method: "POST", path, body, signal });
      metrics.writes.inc({ kind: kinds.podNetwork, what: "create" });
      log.info({ families }, 'PodNetwork "default" created');
    } catch (error) {
      // Somebody else was quicker; the watch brings it.
      if (!isConflict(error)) throw error;
    }
  }

  /** As the command line says, else as the nodes' podCIDRs are. */
  async #families(signal: AbortSignal): Promise<readonly (4 | 6)[]> {
    const { config, client } = this.#context;
    if (config.ipFamilies !== "auto") return config.ipFamilies;
    const path = listPath(resources.nodes);
    const list = await client.request({ path, query: { limit: nodesAsked }, signal });
    const items = isJsonObject(list) && Array.isArray(list["items"]) ? list["items"] : [];
    const cidrs = (items as readonly Json[]).flatMap(podCidrs);
    return ([4, 6] as const).filter((family) =>
      cidrs.some((cidr) => cidr.includes(":") === (family === 6)),
    );
  }
}

function podCidrs(node: Json): string[] {
  const spec = isJsonObject(node) ? node["spec"] : undefined;
  const list = isJsonObject(spec) ? spec["podCIDRs"] : undefined;
  return Array.isArray(list)
    ? (list as readonly Json[]).filter((item) => typeof item === "string")
    : [];
}
