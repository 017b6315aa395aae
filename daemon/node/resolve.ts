import { annotations, defaultNetworkName } from "../../lib/api/names.ts";
import type { PodNetwork } from "../../lib/api/objects.ts";
import { refName, type Selection } from "../../lib/api/selection.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { undeclaredCapabilities } from "../../lib/cni/derive.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type Access, guardNetworks, isTenants, namespaceDefault } from "./access.ts";
import { capabilityArgsOf } from "./capability-args.ts";
import { podNetworkConfig } from "./network-config.ts";
import type { NetworkSource } from "./networks.ts";
import {
  type Foreign,
  type FoundNetwork,
  ofPodNetwork,
  type Places,
  resolveRef,
} from "./resolve-ref.ts";
import type { Selected } from "./select.ts";

/** A network that the sandbox will be attached to, with its configuration. */
export interface ResolvedNetwork extends FoundNetwork {
  /** undefined for a default network that the pod did not list. */
  readonly selection?: Selection;
}

/** A network of the selection that somebody else's provider attaches: podnet leaves it alone. */
export interface ForeignNetwork extends Foreign {
  readonly selection: Selection;
  /** Where it stands in the whole selection, from 0. */
  readonly place: number;
}

/** What becomes of a selection. */
export interface Resolution {
  readonly networks: readonly ResolvedNetwork[];
  readonly foreign: readonly ForeignNetwork[];
}

export interface ResolveOptions {
  /** The PodNetwork "default" must exist, whatever is selected. */
  readonly requireDefaultPodNetwork: boolean;
  /** Whose pod it is; undefined: nobody's, everything may be used. */
  readonly access?: Access;
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
): Promise<Resolution> {
  const places = await placesOf(source, selected, options.access);
  const networks: ResolvedNetwork[] = [];
  const foreign: ForeignNetwork[] = [];
  const first = await resolveDefault(places, selected, options);
  if (first !== undefined) networks.push(first);
  for (const selection of selected.selections) {
    const resolved = await resolveSelection(places, selection);
    const place = networks.length + foreign.length;
    if ("provider" in resolved) foreign.push({ ...resolved, selection, place });
    else networks.push(resolved);
  }
  refuseRepeated([...networks, ...foreign], selected);
  if (networks.length === 0 && foreign.length > 0) throw nothingOfOurs(foreign);
  return { networks, foreign };
}

function nothingOfOurs(foreign: readonly ForeignNetwork[]): CniError {
  const names = foreign.map(({ network, provider }) => `"${network}" is provider "${provider}"'s`);
  const message = `no network to attach: ${names.join(", ")}: list a network of podnet's too`;
  return new CniError(cniCode.podNetworkNotReady, message);
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
  return { source, all, defaultName: own ?? defaultNetworkName, access };
}

/** The cluster's default network's configuration; undefined when there is no PodNetwork "default". Rejects as `resolveNetworks`. */
export async function defaultConflist(source: NetworkSource): Promise<Conflist | undefined> {
  const network = await source.podNetwork(defaultNetworkName);
  return network === undefined ? undefined : (await podNetworkConfig(source, network)).conflist;
}

/** The configurations of all networks that a source knows and that can be used; what can't be used is left out. */
export async function knownConflists(source: NetworkSource): Promise<readonly Conflist[]> {
  const lists: Conflist[] = [];
  for (const { ref, fault } of await source.list()) {
    if (fault !== undefined || ref.kind === "podNetworkAttachment") continue;
    try {
      const places = { source, all: source, defaultName: defaultNetworkName };
      const resolved = await resolveRef(places, ref);
      if ("conflist" in resolved) lists.push(resolved.conflist);
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
    const resolved = await resolveSelection(places, defaultNetwork);
    return { ...requireOurs(resolved), isDefaultNetwork: true };
  }
  if (network === undefined) return undefined;
  return await naming(network.metadata.name, undefined, async () =>
    requireOurs(await ofPodNetwork(places, network)),
  );
}

/** A pod that listed nothing of its own can't do without the network that it gets. */
function requireOurs(resolved: ResolvedNetwork | Foreign): ResolvedNetwork {
  if ("conflist" in resolved) return resolved;
  const { network, provider } = resolved;
  const message = `PodNetwork "${network}": provider "${provider}" is not podnet's, and a default network can't be left to it`;
  throw new CniError(cniCode.podNetworkNotReady, message);
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

async function resolveSelection(
  places: Places,
  selection: Selection,
): Promise<ResolvedNetwork | Foreign> {
  return await naming(refName(selection.ref), selection.index, async () => {
    const found = await resolveRef(places, selection.ref);
    if ("provider" in found) return found;
    const resolved = { ...found, selection };
    refuseFreeChoice(places, resolved);
    const missing = undeclaredCapabilities(resolved.conflist, capabilityArgsOf(selection));
    if (missing.length === 0) return resolved;
    const names = missing.join(", ");
    const message = `asks for ${names}: no plugin of the network declares "capabilities": {"${missing[0]}": true}`;
    throw new CniError(cniCode.capabilityUnsupported, message);
  });
}

/**
 * A device comes from the kubelet. A pod that names one by itself, on a network whose configuration a tenant may have written, would
 * take it from others.
 */
function refuseFreeChoice({ access }: Places, { selection, resourceName }: ResolvedNetwork): void {
  if (selection?.deviceId === undefined || resourceName !== undefined) return;
  const { ref } = selection;
  if (ref.kind === "podNetwork" || access === undefined) return;
  if (!isTenants(access, ref.namespace)) return;
  const message = `deviceID "${selection.deviceId}": devices come with the annotation ${annotations.npwgResourceName}, which this network has not`;
  throw new CniError(cniCode.namespaceNotAllowed, message);
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
function refuseRepeated(
  resolved: readonly Pick<ResolvedNetwork, "network" | "selection">[],
  selected: Selected,
): void {
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
