/** The names that podnet's users write and other programs read. They never change within v1alpha1. */

export const apiGroup = "podnet.dev";
export const apiVersion = "podnet.dev/v1alpha1";
export const nadGroup = "k8s.cni.cncf.io";
export const nadApiVersion = `${nadGroup}/v1`;

export const kinds = {
  podNetwork: "PodNetwork",
  podNetworkAttachment: "PodNetworkAttachment",
  nad: "NetworkAttachmentDefinition",
} as const;

export const annotations = {
  /** On a pod: the networks it wants, podnet's dialect. */
  networks: "podnet.dev/networks",
  /** On a pod: what it got. */
  networkStatus: "podnet.dev/network-status",
  /** On a namespace: the default network of its pods. */
  defaultNetwork: "podnet.dev/default-network",
  /** On a PodNetwork or a NAD: the namespaces that may use it. */
  allowedNamespaces: "podnet.dev/allowed-namespaces",
  allowedNamespaceSelector: "podnet.dev/allowed-namespace-selector",
  /** On a PodNetwork: `attach` asks for the right to it, for each pod's service account. */
  access: "podnet.dev/access",
  /** NPWG multi-net-spec 1.3: the networks that a pod wants besides the default one. */
  npwgNetworks: "k8s.v1.cni.cncf.io/networks",
  npwgNetworkStatus: "k8s.v1.cni.cncf.io/network-status",
  /** On a NAD or a PodNetwork: the resource whose devices its attachments get, one each. */
  npwgResourceName: "k8s.v1.cni.cncf.io/resourceName",
  /** Of the Multus plugin: a NAD that replaces the default network for one pod. */
  multusDefaultNetwork: "v1.multus-cni.io/default-network",
} as const;

export const finalizer = "podnet.dev/in-use";
export const schedulingGate = "podnet.dev/networks-ready";

/** The name of the cluster's default PodNetwork. */
export const defaultNetworkName = "default";
/** Where the default-network annotation of Multus looks when it names no namespace. */
export const multusNamespace = "kube-system";

export const providers = {
  /** Parameters are a CNI configuration. Also meant when `provider` is absent. */
  cni: "podnet.dev/cni",
  /** The node's own conflist whose name is the PodNetwork's. */
  conflist: "podnet.dev/conflist",
} as const;

/** The capability through which a runtime hands over a pod's annotations. */
export const podAnnotationsCapability = "io.kubernetes.cri.pod-annotations";
/** The CNI_ARGS key that selects networks where there are no annotations. */
export const networksArg = "PODNET_NETWORKS";

/** `#` first item, `+` of a DNS label; Kubernetes: DNS-1123 subdomain. */
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const resource =
  /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;
const label = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

/** What is wrong with the name of a network or another Kubernetes object; undefined when nothing is. */
export function objectNameFault(name: string): string | undefined {
  if (name === "") return "must not be empty";
  if (name.length > 253) return `must have at most 253 characters, not ${name.length}`;
  if (subdomain.test(name)) return undefined;
  return `${quote(name)} must be lower-case letters, digits, "-" and ".", with a letter or digit at both ends of each part`;
}

/** What is wrong with a namespace's name; undefined when nothing is. */
export function namespaceFault(name: string): string | undefined {
  if (name === "") return "must not be empty";
  if (name.length > 63) return `must have at most 63 characters, not ${name.length}`;
  if (label.test(name)) return undefined;
  return `${quote(name)} must be lower-case letters, digits and "-", with a letter or digit at both ends`;
}

/**
 * What is wrong with the name of an interface; undefined when nothing is. Linux' rules (dev_valid_name in net/core/dev.c):
 * 1 to 15 bytes, not "." or "..", no "/", ":" or white space; and no control characters, "%" (a pattern for the kernel) or NUL.
 */
export function ifNameFault(name: string): string | undefined {
  if (name === "") return "must not be empty";
  const bytes = new TextEncoder().encode(name).length;
  if (bytes > 15) return `${quote(name)} must have at most 15 bytes, not ${bytes}`;
  if (name === "." || name === "..") return `${quote(name)} is no interface name`;
  if (/[/:%\s\p{Cc}\p{Cf}\p{Cs}\p{Z}]/u.test(name)) {
    return `${quote(name)} must not contain "/", ":", "%", white space or control characters`;
  }
  return undefined;
}

/**
 * The resource whose devices a network's attachments get, from its annotation; or what is wrong with it. An extended resource of
 * Kubernetes: a domain, "/" and a name.
 */
export function resourceNameOf(given: Readonly<Record<string, string>>): {
  readonly name?: string;
  readonly fault?: string;
} {
  const key = annotations.npwgResourceName;
  const name = Object.hasOwn(given, key) ? given[key]?.trim() : undefined;
  if (name === undefined || name === "") return {};
  if (name.length <= 317 && resource.test(name)) return { name };
  const rule = 'must be the name of a resource, as in "vendor.com/vf"';
  return { fault: `annotation ${key}: ${quote(name)} ${rule}` };
}

/** Quotes outside text for one line of an error: escaped, and cut when long. */
export function quote(text: string): string {
  return text.length > 80 ? `${JSON.stringify(text.slice(0, 77))}...` : JSON.stringify(text);
}
