import { fromJSON, type ServiceDefinition } from "@grpc/proto-loader";

const string = (id: number) => ({ type: "string", id });
const strings = (id: number) => ({ rule: "repeated", type: "string", id });
const many = (type: string, id: number) => ({ rule: "repeated", type, id });
const one = (type: string, id: number) => ({ type, id });

/**
 * What podnet reads of the kubelet's pod-resources API, version 1 (k8s.io/kubelet/pkg/apis/podresources/v1, api.proto): numbers are
 * the wire's, and fields that are left out are skipped. `dynamic_resources` is there since Kubernetes 1.27, the names of driver, pool
 * and device since 1.34.
 */
const messages = {
  ListPodResourcesRequest: { fields: {} },
  ListPodResourcesResponse: { fields: { podResources: many("PodResources", 1) } },
  GetPodResourcesRequest: { fields: { podName: string(1), podNamespace: string(2) } },
  GetPodResourcesResponse: { fields: { podResources: one("PodResources", 1) } },
  PodResources: {
    fields: { name: string(1), namespace: string(2), containers: many("ContainerResources", 3) },
  },
  ContainerResources: {
    fields: {
      name: string(1),
      devices: many("ContainerDevices", 2),
      dynamicResources: many("DynamicResource", 5),
    },
  },
  ContainerDevices: { fields: { resourceName: string(1), deviceIds: strings(2) } },
  DynamicResource: {
    fields: {
      claimName: string(2),
      claimNamespace: string(3),
      claimResources: many("ClaimResource", 4),
    },
  },
  ClaimResource: {
    fields: {
      cdiDevices: many("CDIDevice", 1),
      driverName: string(2),
      poolName: string(3),
      deviceName: string(4),
    },
  },
  CDIDevice: { fields: { name: string(1) } },
};

const method = (name: string) => ({
  requestType: `${name}PodResourcesRequest`,
  responseType: `${name}PodResourcesResponse`,
  comment: "",
});
const service = { methods: { List: method("List"), Get: method("Get") } };

/** The kubelet's service `v1.PodResourcesLister`; names of fields in camelCase. */
export function podResourcesService(): ServiceDefinition {
  const root = { nested: { v1: { nested: { ...messages, PodResourcesLister: service } } } };
  const found = fromJSON(root, { defaults: true, arrays: true })["v1.PodResourcesLister"];
  if (found === undefined || "format" in found) throw new TypeError("no PodResourcesLister");
  return found;
}
