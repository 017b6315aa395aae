import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import { type DraApi, objectsOf, resourceSlices } from "../../../lib/kube/dra.ts";
import type { ClaimedDevice } from "./pod-resources.ts";

/** What a driver says of one of its devices, for networks. */
export interface PublishedDevice {
  readonly resource: string;
  readonly id: string;
}

/** Attributes that a driver gives a device for multi-networking; the second is Kubernetes' own for a PCI address. */
const resourceAttribute = "k8s.cni.cncf.io/resourceName";
const idAttributes = ["k8s.cni.cncf.io/deviceID", "resource.kubernetes.io/pciBusID"] as const;

interface Known {
  readonly generation: number;
  readonly device: PublishedDevice | undefined;
}

/**
 * Devices by what their drivers publish of them (ResourceSlices). A driver's slices are read when one of its devices is asked for first:
 * those of this node, and all others only where that does not suffice.
 */
export class DeviceSlices {
  readonly #api: DraApi;
  readonly #nodeName: string | undefined;
  readonly #known = new Map<string, Known>();
  readonly #read = new Set<string>();

  constructor(api: DraApi, nodeName: string | undefined) {
    this.#api = api;
    this.#nodeName = nodeName;
  }

  /** undefined: it has no such attributes, or nobody has published it. Rejects with a KubeError. */
  async find(wanted: ClaimedDevice): Promise<PublishedDevice | undefined> {
    const driver = `spec.driver=${wanted.driver}`;
    const here = this.#nodeName === undefined ? [] : [`spec.nodeName=${this.#nodeName},${driver}`];
    for (const selector of [...here, driver]) {
      if (!this.#read.has(selector)) await this.#load(selector);
      const found = this.#known.get(keyOf(wanted));
      if (found !== undefined) return found.device;
    }
    return undefined;
  }

  async #load(selector: string): Promise<void> {
    for await (const slices of resourceSlices(this.#api, selector)) {
      for (const slice of slices) this.#keep(slice["spec"]);
    }
    this.#read.add(selector);
  }

  /** The newest generation of a pool counts. */
  #keep(spec: unknown): void {
    if (!isJsonObject(spec) || !isJsonObject(spec["pool"])) return;
    const { driver, pool } = spec;
    const { name, generation } = pool;
    if (typeof driver !== "string" || typeof name !== "string") return;
    const number = typeof generation === "number" ? generation : 0;
    for (const device of objectsOf(spec, "devices")) {
      const { name: own } = device;
      if (typeof own !== "string") continue;
      const key = keyOf({ driver, pool: name, device: own });
      const before = this.#known.get(key);
      if (before !== undefined && before.generation > number) continue;
      this.#known.set(key, { generation: number, device: published(device) });
    }
  }
}

function keyOf({ driver, pool, device }: ClaimedDevice): string {
  return JSON.stringify([driver, pool, device]);
}

/** Version v1beta1 of the API has attributes one level deeper. */
function published({ attributes, basic }: JsonObject): PublishedDevice | undefined {
  const inner = isJsonObject(basic) ? basic["attributes"] : undefined;
  const all = attributes ?? inner;
  if (!isJsonObject(all)) return undefined;
  const resource = textOf(all[resourceAttribute]);
  const id = textOf(all[idAttributes[0]]) ?? textOf(all[idAttributes[1]]);
  return resource === undefined || id === undefined ? undefined : { resource, id };
}

function textOf(attribute: unknown): string | undefined {
  const text = isJsonObject(attribute) ? attribute["string"] : undefined;
  return typeof text === "string" && text !== "" ? text : undefined;
}
