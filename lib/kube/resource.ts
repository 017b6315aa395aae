/** A kind of object as the API's paths name it. */
export interface Resource {
  /** `/api/v1`, `/apis/podnet.dev/v1alpha1` */
  readonly base: string;
  readonly plural: string;
  readonly namespaced: boolean;
  /** For messages. */
  readonly kind: string;
  /** Only metadata is asked for: apiVersion `meta.k8s.io/v1`, PartialObjectMetadata. */
  readonly metadataOnly?: boolean;
}

export const resources = {
  pods: { base: "/api/v1", plural: "pods", namespaced: true, kind: "Pod", metadataOnly: true },
  /** Pods as a whole, for who must know their phase and node. */
  wholePods: { base: "/api/v1", plural: "pods", namespaced: true, kind: "Pod" },
  namespaces: {
    base: "/api/v1",
    plural: "namespaces",
    namespaced: false,
    kind: "Namespace",
    metadataOnly: true,
  },
  podNetworks: {
    base: "/apis/podnet.dev/v1alpha1",
    plural: "podnetworks",
    namespaced: false,
    kind: "PodNetwork",
  },
  podNetworkAttachments: {
    base: "/apis/podnet.dev/v1alpha1",
    plural: "podnetworkattachments",
    namespaced: true,
    kind: "PodNetworkAttachment",
  },
  nads: {
    base: "/apis/k8s.cni.cncf.io/v1",
    plural: "network-attachment-definitions",
    namespaced: true,
    kind: "NetworkAttachmentDefinition",
  },
  nodes: { base: "/api/v1", plural: "nodes", namespaced: false, kind: "Node" },
  events: { base: "/api/v1", plural: "events", namespaced: true, kind: "Event" },
  leases: {
    base: "/apis/coordination.k8s.io/v1",
    plural: "leases",
    namespaced: true,
    kind: "Lease",
  },
} as const satisfies Record<string, Resource>;

/** An object of a resource; `namespace` is empty for objects of the whole cluster. */
export interface ObjectKey {
  readonly namespace: string;
  readonly name: string;
}

/** `team-a/web-0`, or `blue` of the whole cluster. */
export function keyText({ namespace, name }: ObjectKey): string {
  return namespace === "" ? name : `${namespace}/${name}`;
}

/** The path of all objects of a resource; with `namespace`: of those in it. */
export function listPath({ base, plural }: Resource, namespace?: string): string {
  const inside = namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${base}${inside}/${plural}`;
}

/** The path of one object; names are escaped. */
export function objectPath(resource: Resource, key: ObjectKey): string {
  const inside = resource.namespaced ? `/namespaces/${encodeURIComponent(key.namespace)}` : "";
  return `${resource.base}${inside}/${resource.plural}/${encodeURIComponent(key.name)}`;
}

/** What to ask for: JSON, or the metadata of it alone. */
export function acceptOf(resource: Resource, list: boolean): string {
  if (resource.metadataOnly !== true) return "application/json";
  const kind = list ? "PartialObjectMetadataList" : "PartialObjectMetadata";
  return `application/json;as=${kind};g=meta.k8s.io;v=v1`;
}
