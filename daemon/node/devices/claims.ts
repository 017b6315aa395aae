import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import {
  claimResource,
  type DraApi,
  findDraApi,
  getIfThere,
  objectsOf,
} from "../../../lib/kube/dra.ts";
import { type ObjectKey, objectPath, resources } from "../../../lib/kube/resource.ts";
import type { ClaimedDevice, PreparedClaim } from "./pod-resources.ts";
import { DeviceSlices } from "./slices.ts";

/** Whose claims are looked at, and where. */
export interface ClaimQuestion {
  /** The cluster's API; undefined: none, and only the kubelet's own words count. */
  readonly client: KubeClient | undefined;
  readonly nodeName: string | undefined;
  readonly pod: ObjectKey & { readonly uid: string | undefined };
  readonly prepared: readonly PreparedClaim[];
  /** Only these matter. */
  readonly wanted: ReadonlySet<string>;
  readonly signal: AbortSignal;
}

/** Ids of devices by resource; in no order. */
export type DeviceIds = Map<string, Set<string>>;

/**
 * The ids of devices that the pod has by claims (Dynamic Resource Allocation), by resource. A device belongs to the resource that its
 * attribute `k8s.cni.cncf.io/resourceName` names and has the id of `k8s.cni.cncf.io/deviceID`, else its PCI address
 * (`resource.kubernetes.io/pciBusID`); one without is known by its CDI name, `RESOURCE=ID`. Reads only. Rejects with code 11 when the
 * API server can't be asked.
 */
export async function claimedDevices(question: ClaimQuestion): Promise<DeviceIds> {
  const ids = cdiIds(question);
  const { client, pod } = question;
  if (client === undefined) return ids;
  try {
    const api = await findDraApi(client, question.signal);
    if (api === undefined) return ids;
    const slices = new DeviceSlices(api, question.nodeName);
    for (const device of await allDevices(api, question)) {
      const found = await slices.find(device);
      if (found !== undefined && question.wanted.has(found.resource)) {
        put(ids, found.resource, found.id);
      }
    }
    return ids;
  } catch (error) {
    const message = `read the claims of pod "${pod.namespace}/${pod.name}": ${errorText(error)}`;
    throw new CniError(cniCode.tryAgainLater, message, { cause: error });
  }
}

function put(ids: DeviceIds, resource: string, id: string): void {
  const known = ids.get(resource) ?? new Set();
  ids.set(resource, known.add(id));
}

/** `acme.io/vf=0000:03:10.1` is device 0000:03:10.1 of acme.io/vf. */
function cdiIds({ prepared, wanted }: ClaimQuestion): DeviceIds {
  const ids: DeviceIds = new Map();
  for (const name of prepared.flatMap(({ cdi }) => cdi)) {
    const at = name.indexOf("=");
    const kind = name.slice(0, Math.max(at, 0));
    if (wanted.has(kind) && at < name.length - 1) put(ids, kind, name.slice(at + 1));
  }
  return ids;
}

/** What the kubelet names, else what the claims say; of a kubelet that tells of no claims, the pod's own are looked at. */
async function allDevices(api: DraApi, question: ClaimQuestion): Promise<ClaimedDevice[]> {
  const { prepared, pod } = question;
  const known = prepared.flatMap(({ devices }) => devices);
  const unnamed = prepared.filter(({ devices }) => devices.length === 0);
  const keys: readonly ObjectKey[] =
    prepared.length > 0 ? unnamed : await claimsOfPod(api, question);
  const devices = [...known];
  for (const { namespace, name } of keys) {
    const claim = await getIfThere(api, objectPath(claimResource(api), { namespace, name }));
    const isPrepared = prepared.length > 0;
    if (isJsonObject(claim) && (isPrepared || isReservedFor(claim, pod.uid))) {
      devices.push(...allocated(claim));
    }
  }
  return devices;
}

async function claimsOfPod(api: DraApi, { pod }: ClaimQuestion): Promise<ObjectKey[]> {
  const object = await getIfThere(api, objectPath(resources.pods, pod));
  const { spec, status } = isJsonObject(object) ? object : {};
  const asked = objectsOf(spec, "resourceClaims").map((one) => one["resourceClaimName"]);
  const made = objectsOf(status, "resourceClaimStatuses").map((one) => one["resourceClaimName"]);
  const extended = isJsonObject(status) ? status["extendedResourceClaimStatus"] : undefined;
  const hidden = isJsonObject(extended) ? extended["resourceClaimName"] : undefined;
  const names = new Set([...asked, ...made, hidden].filter((one) => typeof one === "string"));
  return [...names].map((name) => ({ namespace: pod.namespace, name }));
}

function isReservedFor({ status }: JsonObject, uid: string | undefined): boolean {
  return objectsOf(status, "reservedFor").some((one) => uid === undefined || one["uid"] === uid);
}

function allocated({ status }: JsonObject): ClaimedDevice[] {
  const allocation = isJsonObject(status) ? status["allocation"] : undefined;
  const devices = isJsonObject(allocation) ? allocation["devices"] : undefined;
  return objectsOf(devices, "results").flatMap(({ driver, pool, device }) =>
    typeof driver === "string" && typeof pool === "string" && typeof device === "string"
      ? [{ driver, pool, device }]
      : [],
  );
}
