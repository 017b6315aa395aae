import { annotations, defaultNetworkName } from "../../lib/api/names.ts";
import type { IpamMode, PodNetwork } from "../../lib/api/objects.ts";
import { type NetworkRef, refName, type Selection } from "../../lib/api/selection.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { undeclaredCapabilities } from "../../lib/cni/derive.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type Access, guardNetworks, namespaceDefault } from "./access.ts";
import { capabilityArgsOf } from "./capability-args.ts";
import { familyRulesFault } from "./families.ts";
import { nadConflist, podNetworkConflist } from "./network-config.ts";
import { type NetworkSource, title } from "./networks.ts";
import type { Selected } from "./select.ts";

/** A network that the sandbox will be attached to, with its configuration. */
export interface ResolvedNetwork {
  /** As people know it and as results tag it: the PodNetwork's name, or `namespace/name` of a NAD. */
  readonly network: string;
  /** It is the cluster's default network, or replaces it. */
  readonly isDefaultNetwork: boolean;
  /** undefined for a default network that the pod did not list. */
  readonly selection?: Selection;
  /** Its `text` has the name in it, so that it says everything by itself. */
  readonly conflist: Conflist;
  /** Where its addresses must come from; undefined: the object says nothing. */
  readonly ipam4?: IpamMode;
  readonly ipam6?: IpamMode;
}

export interface ResolveOptions {
  /** The PodNetwork "default" must exist, whatever is selected. */
  readonly requireDefaultPodNetwork: boolean;
  /** Whose pod it is; undefined: nobody's, everything may be used. */
  readonly access?: Access;
}

/** Where networks are looked for. */
interface Places {
  /** What the pod may use; rejects for the rest. */
  readonly source: NetworkSource;
  /** All networks, for what the admin's own objects refer to. */
  readonly all: NetworkSource;
  /** Name of the default network. */
  readonly defaultName: string;
}

/**
 * Finds the networks of a selection, in its order, the default network before an additional one. Rejects with a CniError that
 * names the network and its entry: code 100 (no such PodNetwork), 101 (not usable now), 102 (no such NAD), 103 (a capability that
 * nobody declares), 104 (not for this namespace), 106 (a network twice), 7 (wrong configuration), 11 (the source can't tell).
 */
export async function resolveNetworks(
  source: NetworkSource,
  selected: Selected,
  options: ResolveOptions,
): Promise<readonly ResolvedNetwork[]> {
  const places = await placesOf(source, selected, options.access);
  const resolved: ResolvedNetwork[] = [];
  const first = await resolveDefault(places, selected, options);
  if (first !== undefined) resolved.push(first);
  for (const selection of selected.selections) {
    resolved.push(await resolveSelection(places, selection));
  }
  refuseRepeated(resolved, selected);
  return resolved;
}

/** The default network is the namespace's own where it names one; nobody is asked where no default network plays a part. */
async function placesOf(
  all: NetworkSource,
  { selections, defaultNetwork, mode }: Selected,
  access: Access | undefined,
): Promise<Places> {
  if (access === undefined) return { source: all, all, defaultName: defaultNetworkName };
  const source = guardNetworks(all, access);
  const plays = defaultNetwork === undefined && (mode === "additional" || selections.length > 1);
  const own = plays ? await namespaceDefault(access) : undefined;
  return { source, all, defaultName: own ?? defaultNetworkName };
}

/** The cluster's default network's configuration; undefined when there is no PodNetwork "default". Rejects as `resolveNetworks`. */
export async function defaultConflist(source: NetworkSource): Promise<Conflist | undefined> {
  const network = await source.podNetwork(defaultNetworkName);
  return network === undefined ? undefined : await podNetworkConflist(source, network);
}

/** The configurations of all networks that a source knows and that can be used; what can't be used is left out. */
export async function knownConflists(source: NetworkSource): Promise<readonly Conflist[]> {
  const lists: Conflist[] = [];
  for (const { ref, fault } of await source.list()) {
    if (fault !== undefined || ref.kind === "podNetworkAttachment") continue;
    try {
      const places = { source, all: source, defaultName: defaultNetworkName };
      lists.push((await resolveRef(places, ref)).conflist);
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
    }
  }
  return lists;
}

async function resolveDefault(
  places: Places,
  selected: Selected,
  options: ResolveOptions,
): Promise<ResolvedNetwork | undefined> {
  const network = await needDefault(places, selected, options);
  if (selected.mode === "explicit") return undefined;
  const { defaultNetwork } = selected;
  if (defaultNetwork !== undefined) {
    return { ...(await resolveSelection(places, defaultNetwork)), isDefaultNetwork: true };
  }
  if (network === undefined) return undefined;
  return await naming(network.metadata.name, undefined, async () => ofPodNetwork(places, network));
}

/** The PodNetwork "default", where it plays a part. Rejects with code 100 when it must be there and is not. */
async function needDefault(
  { source, all, defaultName }: Places,
  selected: Selected,
  { requireDefaultPodNetwork }: ResolveOptions,
): Promise<PodNetwork | undefined> {
  const { selections, defaultNetwork, mode } = selected;
  const plays = mode === "additional" && defaultNetwork === undefined;
  if (!plays && !requireDefaultPodNetwork) return undefined;
  const network = await (plays ? source : all).podNetwork(defaultName);
  if (network !== undefined) return network;
  if (requireDefaultPodNetwork) {
    const message = `PodNetwork "${defaultName}" not found: create it, or set requireDefaultPodNetwork to false`;
    throw new CniError(cniCode.podNetworkMissing, message);
  }
  if (defaultName !== defaultNetworkName) {
    const message = `PodNetwork "${defaultName}" not found: annotation ${annotations.defaultNetwork} of the pod's namespace names it`;
    throw new CniError(cniCode.podNetworkMissing, message);
  }
  if (selections.length > 0) return undefined;
  const message = `no network to attach: the pod selects none, and PodNetwork "${defaultName}" not found`;
  throw new CniError(cniCode.podNetworkMissing, message);
}

async function resolveSelection(places: Places, selection: Selection): Promise<ResolvedNetwork> {
  return await naming(refName(selection.ref), selection.index, async () => {
    const resolved = { ...(await resolveRef(places, selection.ref)), selection };
    const missing = undeclaredCapabilities(resolved.conflist, capabilityArgsOf(selection));
    if (missing.length === 0) return resolved;
    const names = missing.join(", ");
    const message = `asks for ${names}: no plugin of the network declares "capabilities": {"${missing[0]}": true}`;
    throw new CniError(cniCode.capabilityUnsupported, message);
  });
}

async function resolveRef(places: Places, ref: NetworkRef): Promise<ResolvedNetwork> {
  const { source } = places;
  if (ref.kind === "podNetwork")
    return await ofPodNetwork(places, await needPodNetwork(source, ref.name));
  if (ref.kind === "podNetworkAttachment") {
    const attachment = await source.podNetworkAttachment(ref.namespace, ref.name);
    if (attachment === undefined) throw notFound(ref);
    const network = await needPodNetwork(source, attachment.spec.podNetworkName);
    const { namespace } = attachment.metadata;
    const refs = attachment.spec.parametersRefs.map((one) => ({ namespace, ...one }));
    return await ofPodNetwork(places, network, refs);
  }
  const nad = await source.nad(ref.namespace, ref.name);
  if (nad === undefined) throw notFound(ref);
  const conflist = await nadConflist(source, nad);
  return { network: refName(ref), isDefaultNetwork: false, conflist: refuseItself(conflist) };
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
async function ofPodNetwork(
  { source, all, defaultName }: Places,
  network: PodNetwork,
  refs: PodNetwork["spec"]["parametersRefs"] = [],
): Promise<ResolvedNetwork> {
  const { ipam4, ipam6 } = network.spec;
  const fault = familyRulesFault(network.spec);
  if (fault !== undefined) throw new CniError(cniCode.podNetworkNotReady, fault);
  const from = refs.length > 0 ? source : all;
  return {
    network: network.metadata.name,
    isDefaultNetwork: network.metadata.name === defaultName,
    conflist: refuseItself(await podNetworkConflist(from, network, refs)),
    ...(ipam4 === undefined ? {} : { ipam4 }),
    ...(ipam6 === undefined ? {} : { ipam6 }),
  };
}

/** A network made of podnet would call podnet again, without end. */
function refuseItself(list: Conflist): Conflist {
  if (list.plugins.every(({ type }) => type !== "podnet")) return list;
  const message = `configuration "${list.name}" has a plugin of type "podnet": podnet can't delegate to itself`;
  throw new CniError(cniCode.invalidNetworkConfig, message);
}

/** Puts before an error's text which network it is about, and the entry that asked for it. */
async function naming<T>(
  network: string,
  entry: number | undefined,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw named(`network "${network}"${entry === undefined ? "" : ` (entry ${entry})`}`, error);
  }
}

function named(where: string, cause: CniError): CniError {
  const details = cause.details === undefined ? {} : { details: cause.details };
  return new CniError(cause.code, `${where}: ${errorText(cause)}`, { cause, ...details });
}

/** Spec A.3.2 rule 3: a PodNetwork once, be it named directly or through an attachment. The NPWG list may repeat. */
function refuseRepeated(resolved: readonly ResolvedNetwork[], selected: Selected): void {
  if (selected.mode !== "explicit") return;
  const seen = new Set<string>();
  for (const { network, selection } of resolved) {
    if (seen.has(network)) {
      const entry = selection === undefined ? "" : ` (entry ${selection.index})`;
      const message = `network "${network}"${entry}: PodNetwork "${network}" is referenced more than once`;
      throw new CniError(cniCode.selectionInvalid, message);
    }
    seen.add(network);
  }
}
