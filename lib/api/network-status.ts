import type { JsonObject } from "../base/json.ts";
import type { CniDns, CniResult } from "../cni/types.ts";

/** One attachment as it is now. */
export interface AttachedNetwork {
  /** The PodNetwork's name, or `namespace/name` of a NAD. */
  readonly network: string;
  readonly ifName: string;
  /** It is the pod's default network; one is. */
  readonly default: boolean;
  readonly result: CniResult;
  /** As the kernel has them; undefined where it was not asked. */
  readonly mac?: string;
  readonly mtu?: number;
  /** Gateways of the default routes through it, as the kernel has them; empty text: a route without gateway. */
  readonly defaultRoutes: readonly { readonly family: 4 | 6; readonly gateway: string }[];
  /** Content of its device information file. */
  readonly deviceInfo?: JsonObject;
}

/** A row of podnet.dev/network-status (spec A.4): one for each address, or one alone where there is none. */
export interface PodNetworkStatus {
  readonly name: string;
  readonly interfaceName: string;
  readonly ip?: string;
  readonly isDefaultGW?: true;
  /** Only where one network has the default route of a family that is not the other's. */
  readonly isDefaultGW4?: true;
  readonly isDefaultGW6?: true;
}

/** An element of k8s.v1.cni.cncf.io/network-status (spec B.4). */
export interface NpwgStatus {
  readonly name: string;
  readonly interface: string;
  readonly ips?: readonly string[];
  readonly mac?: string;
  readonly mtu?: number;
  readonly default?: true;
  readonly dns: CniDns;
  readonly gateway?: readonly string[];
  readonly "default-route"?: readonly string[];
  readonly "device-info"?: JsonObject;
}

/** The rows of podnet.dev/network-status. */
export function podNetworkStatus(attached: readonly AttachedNetwork[]): PodNetworkStatus[] {
  const owner = (family: 4 | 6) => attached.findIndex((one) => owns(one, family));
  const [v4, v6] = [owner(4), owner(6)];
  const differ = v4 >= 0 && v6 >= 0 && v4 !== v6;
  return attached.flatMap((one): PodNetworkStatus[] => {
    const base = { name: one.network, interfaceName: one.ifName };
    const ips = bareIps(one);
    if (ips.length === 0) return [base];
    return ips.map((ip) => {
      const family = ip.includes(":") ? 6 : 4;
      if (!owns(one, family)) return { ...base, ip };
      const exact =
        family === 4 ? { isDefaultGW4: true as const } : { isDefaultGW6: true as const };
      return { ...base, ip, isDefaultGW: true, ...(differ ? exact : {}) };
    });
  });
}

/** The elements of k8s.v1.cni.cncf.io/network-status, the default network's first. */
export function npwgStatus(attached: readonly AttachedNetwork[]): NpwgStatus[] {
  return attached.map((one) => {
    const ips = bareIps(one);
    const gateways = one.defaultRoutes.map(({ gateway }) => gateway).filter((ip) => ip !== "");
    return {
      name: one.network,
      interface: one.ifName,
      ...(ips.length === 0 ? {} : { ips }),
      ...(one.mac === undefined ? {} : { mac: one.mac }),
      ...(one.mtu === undefined ? {} : { mtu: one.mtu }),
      ...(one.default ? { default: true } : {}),
      dns: one.result.dns,
      ...(gateways.length === 0 ? {} : { gateway: gateways, "default-route": gateways }),
      ...(one.deviceInfo === undefined ? {} : { "device-info": one.deviceInfo }),
    };
  });
}

function owns({ defaultRoutes }: AttachedNetwork, of: 4 | 6): boolean {
  return defaultRoutes.some(({ family }) => family === of);
}

/** The addresses of the pod's interface; those without an interface count, those of the node's side do not. */
function bareIps({ result, ifName }: AttachedNetwork): string[] {
  return result.ips
    .filter(({ interface: place }) => {
      const owner = place === undefined ? undefined : result.interfaces[place];
      return owner === undefined || owner.name === ifName || owner.sandbox !== undefined;
    })
    .map(({ address }) => address.split("/")[0] ?? "");
}
