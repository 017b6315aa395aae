import { type FixedAttachment, fixedAddresses } from "../../lib/api/fixed-addresses.ts";
import type { IpamMode, PodNetwork, PodNetworkAttachment } from "../../lib/api/objects.ts";
import { type NetworkRef, refName } from "../../lib/api/selection.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { Access } from "./access.ts";
import {
  foreignProvider,
  type NetworkConfig,
  nadConfig,
  podNetworkConfig,
  requireUsable,
} from "./network-config.ts";
import { type NetworkSource, title } from "./networks.ts";

/** A network that podnet attaches, with its configuration. */
export interface FoundNetwork extends NetworkConfig {
  /** As people know it and as results tag it: the PodNetwork's name, or `namespace/name` of a NAD. */
  readonly network: string;
  /** It is the cluster's default network, or replaces it. */
  readonly isDefaultNetwork: boolean;
  /** Where its addresses must come from; undefined: the object says nothing. */
  readonly ipam4?: IpamMode;
  readonly ipam6?: IpamMode;
  /** The attachment that it came through, where that gives out addresses of its own. */
  readonly fixed?: FixedAttachment;
}

/** A network that somebody else's provider attaches. */
export interface Foreign {
  readonly network: string;
  readonly provider: string;
}

/** Where networks are looked for. */
export interface Places {
  /** What the pod may use; rejects for the rest. */
  readonly source: NetworkSource;
  /** All networks, for what the admin's own objects refer to. */
  readonly all: NetworkSource;
  /** Name of the default network. */
  readonly defaultName: string;
  readonly access?: Access;
}

/**
 * What a selection, or an object of the admin, refers to. Rejects with a CniError: code 100, 101, 102, 104, 7 or 11, as `resolveNetworks`.
 */
export async function resolveRef(places: Places, ref: NetworkRef): Promise<FoundNetwork | Foreign> {
  const { source } = places;
  if (ref.kind === "podNetwork")
    return await ofPodNetwork(places, await needPodNetwork(source, ref.name));
  if (ref.kind === "podNetworkAttachment") {
    const attachment = await source.podNetworkAttachment(ref.namespace, ref.name);
    if (attachment === undefined) throw notFound(ref);
    const network = await needPodNetwork(source, attachment.spec.podNetworkName);
    const { namespace } = attachment.metadata;
    const refs = attachment.spec.parametersRefs.map((one) => ({ namespace, ...one }));
    return withFixed(attachment, await ofPodNetwork(places, network, refs));
  }
  const nad = await source.nad(ref.namespace, ref.name);
  if (nad === undefined) throw notFound(ref);
  return { network: refName(ref), isDefaultNetwork: false, ...ours(await nadConfig(source, nad)) };
}

/** Addresses in an attachment's own parameters are for one pod at a time. */
function withFixed(
  { metadata, spec }: PodNetworkAttachment,
  found: FoundNetwork | Foreign,
): FoundNetwork | Foreign {
  if ("provider" in found || spec.parametersRefs.length === 0) return found;
  const addresses = fixedAddresses(found.conflist.plugins);
  const { namespace, name } = metadata;
  return addresses.length === 0 ? found : { ...found, fixed: { namespace, name, addresses } };
}

async function needPodNetwork(source: NetworkSource, name: string): Promise<PodNetwork> {
  const network = await source.podNetwork(name);
  if (network === undefined) throw notFound({ kind: "podNetwork", name });
  return network;
}

function notFound(ref: NetworkRef): CniError {
  const code = ref.kind === "nad" ? cniCode.nadMissing : cniCode.podNetworkMissing;
  return new CniError(code, `${title(ref)} not found: create it or correct the name`);
}

/** `refs` are those of a PodNetworkAttachment, which tenants write: they reach what the pod may use only. */
export async function ofPodNetwork(
  { source, all, defaultName }: Places,
  network: PodNetwork,
  refs: PodNetwork["spec"]["parametersRefs"] = [],
): Promise<FoundNetwork | Foreign> {
  requireUsable(network);
  const { name } = network.metadata;
  const provider = foreignProvider(network);
  if (provider !== undefined) return { network: name, provider };
  const { ipam4, ipam6 } = network.spec;
  const from = refs.length > 0 ? source : all;
  return {
    network: name,
    isDefaultNetwork: name === defaultName,
    ...ours(await podNetworkConfig(from, network, refs)),
    ...(ipam4 === undefined ? {} : { ipam4 }),
    ...(ipam6 === undefined ? {} : { ipam6 }),
  };
}

function ours({ conflist, ...rest }: NetworkConfig): NetworkConfig {
  return { ...rest, conflist: refuseItself(conflist) };
}

/** A network made of podnet would call podnet again, without end. */
function refuseItself(list: Conflist): Conflist {
  if (list.plugins.every(({ type }) => type !== "podnet")) return list;
  const message = `configuration "${list.name}" has a plugin of type "podnet": podnet can't delegate to itself`;
  throw new CniError(cniCode.invalidNetworkConfig, message);
}
