import type { JsonObject } from "../base/json.ts";

/** The metadata that podnet reads. */
export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly generation?: number;
  readonly deletionTimestamp?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A pointer to an object with a provider's parameters (spec A.1). `kind` is a kind or a plural resource name. */
export interface ParametersRef {
  readonly group: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace?: string;
}

/** Where the addresses of a family come from (spec A.8). */
export const ipamModes = ["kubernetes", "external", "none"] as const;
export type IpamMode = (typeof ipamModes)[number];

/** A network that pods can be attached to: cluster-scoped, apiVersion podnet.dev/v1alpha1 (spec A.1). */
export interface PodNetwork {
  readonly kind: "PodNetwork";
  readonly metadata: ObjectMeta;
  readonly spec: {
    /** false: no new attachments. */
    readonly enabled: boolean;
    /** Who handles it; `podnet.dev/cni` when the object names nobody. */
    readonly provider: string;
    readonly parametersRefs: readonly ParametersRef[];
    /** For podnet.dev/cni a plugin configuration, or `{plugins: [...]}`; anything for other providers. Keys as written. */
    readonly parameters?: JsonObject;
    readonly ipam4?: IpamMode;
    readonly ipam6?: IpamMode;
  };
}

/** Parameters of one attachment to a PodNetwork: namespaced (spec A.2). */
export interface PodNetworkAttachment {
  readonly kind: "PodNetworkAttachment";
  readonly metadata: ObjectMeta & { readonly namespace: string };
  readonly spec: {
    readonly podNetworkName: string;
    readonly parametersRefs: readonly ParametersRef[];
  };
}

/** A NetworkAttachmentDefinition, k8s.cni.cncf.io/v1 (spec B.1). */
export interface Nad {
  readonly kind: "NetworkAttachmentDefinition";
  readonly metadata: ObjectMeta & { readonly namespace: string };
  /** JSON text of a CNI configuration or list, as written; undefined: the node has one of the same name. */
  readonly config?: string;
}
