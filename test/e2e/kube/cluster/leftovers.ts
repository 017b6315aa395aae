import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { WholeCluster } from "../../../helpers/whole-cluster.ts";

function files(cluster: WholeCluster, folder: string): string[] {
  const { node } = cluster;
  if (!node.exists(folder)) return [];
  return readdirSync(node.outside(folder)).map((name) => join(folder, name));
}

/** Files of host-local for addresses that somebody has. */
export function reservedAddresses(cluster: WholeCluster): string[] {
  return files(cluster, "/var/lib/cni/networks")
    .flatMap((folder) => files(cluster, folder))
    .filter((path) => !/\/(lock|last_reserved_ip\.\d+)$/.test(path));
}

/**
 * What pods leave on the node when they were not taken down whole: ends of their links, named network namespaces, addresses that
 * are still reserved, records. Empty when no pod with a network of its own is on the node.
 */
export function leftovers(cluster: WholeCluster): string[] {
  const { node } = cluster;
  const links: { ifname: string; linkinfo?: { info_kind?: string } }[] = JSON.parse(
    node.run("ip", "-j", "-d", "link"),
  );
  const ends = links.filter(
    ({ ifname, linkinfo }) => linkinfo?.info_kind === "veth" && ifname !== "uplink",
  );
  return [
    ...ends.map(({ ifname }) => `link ${ifname}`),
    ...files(cluster, "/run/netns"),
    ...reservedAddresses(cluster),
    ...files(cluster, "/var/lib/podnet/records"),
  ];
}

/** Waits until nothing is left, `except` what is somebody else's: the kubelet takes pods down after they are gone from the API. */
export async function nothingLeft(
  cluster: WholeCluster,
  except: readonly string[] = [],
): Promise<void> {
  let last: string[] = [];
  await cluster.eventually(
    "nothing left on the node",
    () => {
      last = leftovers(cluster).filter((one) => !except.includes(one));
      return last.length === 0 ? true : undefined;
    },
    { seconds: 240, about: () => `${last.join("\n")}\n${cluster.logs()}` },
  );
}
