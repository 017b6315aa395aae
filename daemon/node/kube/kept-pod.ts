import { ownAnnotations } from "../../../lib/api/kept.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";

/** What podnet keeps of a pod. */
export interface KubePod {
  readonly uid: string;
  /** Those of podnet, NPWG and Multus only. */
  readonly annotations: Readonly<Record<string, string>>;
  /** For a mirror of a static pod: the id that the kubelet itself has for it. */
  readonly staticUid?: string;
}

/** A static pod has another uid in the API than for the kubelet, which writes its own into the mirror. */
export function isSame(pod: KubePod, uid: string | undefined): boolean {
  return uid === undefined || uid === pod.uid || uid === pod.staticUid;
}

export function keepPod({ metadata }: JsonObject): KubePod {
  const meta = isJsonObject(metadata) ? metadata : {};
  const { uid, annotations } = meta;
  const all = isJsonObject(annotations) ? annotations : {};
  const mirror = all["kubernetes.io/config.mirror"];
  const hash = all["kubernetes.io/config.hash"];
  const staticUid =
    typeof mirror !== "string" ? undefined : typeof hash === "string" ? hash : mirror;
  return {
    uid: typeof uid === "string" ? uid : "",
    annotations: ownAnnotations(meta),
    ...(staticUid === undefined ? {} : { staticUid }),
  };
}
