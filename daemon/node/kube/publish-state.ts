import { annotations } from "../../../lib/api/names.ts";
import {
  type AttachedNetwork,
  npwgStatus,
  podNetworkStatus,
} from "../../../lib/api/network-status.ts";
import { emptyResult } from "../../../lib/cni/types.ts";
import type { Route } from "../../../lib/netlink/model.ts";
import type { AttachmentRecord, SandboxRecord } from "../record.ts";
import type { OpenSandbox } from "../sandbox.ts";

/** RT_TABLE_MAIN and RTN_UNICAST of linux/rtnetlink.h. */
const mainTable = 254;
const unicast = 1;

/** The annotations that say what a pod has. */
export type StatusAnnotations = Readonly<
  Record<typeof annotations.networkStatus | typeof annotations.npwgNetworkStatus, string>
>;

/** What the sandbox of a record has: what ADD made of it, links and default routes as the kernel has them now. */
export async function statusOf(
  record: SandboxRecord,
  sandbox: OpenSandbox,
): Promise<StatusAnnotations> {
  const { rtnl } = sandbox;
  const [links, v4, v6] = await Promise.all([
    rtnl.links(),
    rtnl.routes({ family: 4, table: mainTable }),
    rtnl.routes({ family: 6, table: mainTable }),
  ]);
  const defaults = [...v4, ...v6].filter(isDefault);
  const attached = record.attachments.map((attachment) => {
    const link = links.find(({ name }) => name === attachment.ifName);
    const own = defaults.filter(({ index }) => link !== undefined && index === link.index);
    return describe(attachment, own, link);
  });
  return {
    [annotations.networkStatus]: JSON.stringify(podNetworkStatus(attached)),
    [annotations.npwgNetworkStatus]: JSON.stringify(npwgStatus(attached)),
  };
}

function isDefault({ family, destination, type }: Route): boolean {
  return type === unicast && destination === (family === 4 ? "0.0.0.0/0" : "::/0");
}

function describe(
  { network, ifName, default: isDefault, result = emptyResult, deviceInfo }: AttachmentRecord,
  routes: readonly Route[],
  link: { readonly mac: string | undefined; readonly mtu: number } | undefined,
): AttachedNetwork {
  // A device whose driver is the workload's own is no interface of the kernel: what its plugin says is all that there is.
  const said = result.interfaces.find(
    ({ name, sandbox }) => name === ifName && sandbox !== undefined,
  );
  const mac = link?.mac ?? said?.mac;
  const mtu = link?.mtu ?? said?.mtu;
  return {
    network,
    ifName,
    default: isDefault,
    result,
    defaultRoutes: routes.map(({ family, gateway = "" }) => ({ family, gateway })),
    ...(mac === undefined ? {} : { mac }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(deviceInfo === undefined ? {} : { deviceInfo }),
  };
}
