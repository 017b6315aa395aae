import type { WholeCluster } from "../../../helpers/whole-cluster.ts";
import type { PodnetInstallation } from "../../../helpers/whole-cluster-podnet.ts";

/** What the tests of the whole cluster share. */
export interface Whole {
  readonly cluster: WholeCluster;
  readonly podnet: PodnetInstallation;
}

export const own = "podnet.dev/networks";
export const npwg = "k8s.v1.cni.cncf.io/networks";

export function bridge(name: string, subnet: string, ipam: object = {}): object {
  const addresses = { type: "host-local", ranges: [[{ subnet }]], ...ipam };
  return { type: "bridge", bridge: `br-${name}`, ipam: addresses };
}

export function podNetwork(name: string, parameters: object): object {
  return {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name },
    spec: { parameters },
  };
}

export function nad(path: string, config: object): object {
  const [namespace, name] = path.split("/");
  return {
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { namespace, name },
    spec: { config: JSON.stringify({ cniVersion: "1.0.0", ...config }) },
  };
}

/**
 * PodNetworks `blue` (10.10) and `red` (10.20), the attachment `default/fast` to red (10.21), NADs `default/n` (10.50) and
 * `kube-system/other` (10.60, brings a gateway), a namespace `tenant` whose default network is blue.
 */
export function applyNetworks({ cluster }: Whole): void {
  const gateway = { ...bridge("other", "10.60.0.0/16"), isDefaultGateway: true };
  cluster.api.apply(
    podNetwork("blue", bridge("blue", "10.10.0.0/16")),
    podNetwork("red", bridge("red", "10.20.0.0/16")),
    nad("default/n", bridge("n", "10.50.0.0/16")),
    nad("default/fast", bridge("red", "10.21.0.0/16")),
    nad("kube-system/other", gateway),
    {
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetworkAttachment",
      metadata: { namespace: "default", name: "fast" },
      spec: {
        podNetworkName: "red",
        parametersRefs: [
          { group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", name: "fast" },
        ],
      },
    },
    {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: "tenant", annotations: { "podnet.dev/default-network": "blue" } },
    },
  );
}
