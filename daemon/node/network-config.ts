import { nadApiVersion, providers, resourceNameOf } from "../../lib/api/names.ts";
import type { Nad, ParametersRef, PodNetwork } from "../../lib/api/objects.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { newestCniVersion } from "../../lib/cni/types.ts";
import { withNodeRanges } from "./kube/node-ranges.ts";
import type { NetworkSource } from "./networks.ts";

/** How a network's attachments are made. */
export interface NetworkConfig {
  readonly conflist: Conflist;
  /** The resource whose devices the attachments get, one each. */
  readonly resourceName?: string;
}

/** What a network says about itself failed to become a configuration; `attach network "blue" (entry 0): ` goes before it. */
function refuse(code: number, message: string, cause?: unknown): CniError {
  const details = cause instanceof CniError ? cause.details : undefined;
  return new CniError(code, message, {
    ...(cause === undefined ? {} : { cause }),
    ...(details === undefined ? {} : { details }),
  });
}

/**
 * The configuration of a PodNetwork. `refs`: those of a PodNetworkAttachment, in place of the network's own. Rejects with code 101
 * (not usable now), 102 (a NAD that it names is missing), 7 (wrong configuration) or 11 (what it needs of the node is not known).
 */
export async function podNetworkConfig(
  source: NetworkSource,
  network: PodNetwork,
  refs: readonly ParametersRef[] = [],
): Promise<NetworkConfig> {
  requireUsable(network);
  const found = await ownConfig(source, network, refs);
  const conflist = await withNodeRanges(source, network, found.conflist);
  // What the network's author says of it comes before what somebody's NAD says.
  const resourceName = resourceOf(`PodNetwork "${network.metadata.name}"`, network);
  return resourceName === undefined ? { ...found, conflist } : { conflist, resourceName };
}

/** Throws code 101 for a PodNetwork that nothing new is attached to, whoever handles it. */
export function requireUsable({ metadata, spec }: PodNetwork): void {
  const { name, deletionTimestamp } = metadata;
  if (!spec.enabled) {
    throw refuse(
      cniCode.podNetworkNotReady,
      `PodNetwork "${name}" is disabled: set spec.enabled to true`,
    );
  }
  if (deletionTimestamp !== undefined) {
    throw refuse(cniCode.podNetworkNotReady, `PodNetwork "${name}" is being deleted`);
  }
}

/** The provider that handles a PodNetwork in podnet's place; undefined: podnet does. */
export function foreignProvider({ spec: { provider } }: PodNetwork): string | undefined {
  return provider === providers.cni || provider === providers.conflist ? undefined : provider;
}

async function ownConfig(
  source: NetworkSource,
  network: PodNetwork,
  refs: readonly ParametersRef[],
): Promise<NetworkConfig> {
  const { name } = network.metadata;
  const { provider, parameters } = network.spec;
  if (provider === providers.conflist) return { conflist: await nodeConflist(source, name) };
  if (foreignProvider(network) !== undefined) {
    const message = `PodNetwork "${name}": provider "${provider}" is not handled on this node`;
    throw refuse(cniCode.podNetworkNotReady, message);
  }
  const chosen = refs.length > 0 ? refs : network.spec.parametersRefs;
  if (chosen.length > 0) return await referredConfig(source, name, chosen);
  if (parameters !== undefined)
    return { conflist: checked(`PodNetwork "${name}"`, parametersText(name, parameters), name) };
  const message = `PodNetwork "${name}" has neither spec.parameters nor spec.parametersRefs: there is nothing to attach with`;
  throw refuse(cniCode.podNetworkNotReady, message);
}

/** The configuration of a NAD, or the node's own of the same name (spec B.1). Rejects with code 102 or 7. */
export async function nadConfig(source: NetworkSource, nad: Nad): Promise<NetworkConfig> {
  const { namespace, name } = nad.metadata;
  const what = `NetworkAttachmentDefinition "${namespace}/${name}"`;
  const resourceName = resourceOf(what, nad);
  const resource = resourceName === undefined ? {} : { resourceName };
  if (nad.config !== undefined)
    return { conflist: checked(`${what}: spec.config`, nad.config, name), ...resource };
  const found = await source.conflist(name);
  if (found !== undefined) return { conflist: found, ...resource };
  throw refuse(
    cniCode.nadMissing,
    `${what} has no spec.config, and the node has no CNI configuration named "${name}"`,
  );
}

/** Throws code 7 for an annotation that no resource has as its name. */
function resourceOf(what: string, { metadata }: Nad | PodNetwork): string | undefined {
  const { name, fault } = resourceNameOf(metadata.annotations);
  if (fault === undefined) return name;
  throw refuse(cniCode.invalidNetworkConfig, `${what}: ${fault}`);
}

async function nodeConflist(source: NetworkSource, name: string): Promise<Conflist> {
  const found = await source.conflist(name);
  if (found !== undefined) return found;
  const message = `PodNetwork "${name}": the node has no CNI configuration named "${name}" for provider ${providers.conflist}`;
  throw refuse(cniCode.podNetworkNotReady, message);
}

/** A PodNetwork whose parameters are one NAD. */
async function referredConfig(
  source: NetworkSource,
  network: string,
  refs: readonly ParametersRef[],
): Promise<NetworkConfig> {
  const [ref] = refs;
  const [nadGroup] = nadApiVersion.split("/");
  const isNad =
    ref?.group === nadGroup && /^network-?attachment-?definitions?$/i.test(ref?.kind ?? "");
  if (ref === undefined || refs.length > 1 || !isNad) {
    const message = `PodNetwork "${network}": spec.parametersRefs must be one NetworkAttachmentDefinition (${nadGroup}) for provider ${providers.cni}`;
    throw refuse(cniCode.podNetworkNotReady, message);
  }
  const namespace = ref.namespace ?? "default";
  const nad = await source.nad(namespace, ref.name);
  if (nad === undefined) {
    const message = `PodNetwork "${network}": NetworkAttachmentDefinition "${namespace}/${ref.name}" of spec.parametersRefs not found`;
    throw refuse(cniCode.nadMissing, message);
  }
  return await nadConfig(source, nad);
}

/** Inline parameters with what podnet adds: the network's name always, the newest cniVersion unless they name one. */
function parametersText(name: string, parameters: JsonObject): string {
  const list = parameters["plugins"] === undefined ? { plugins: [parameters] } : parameters;
  return JSON.stringify({
    ...list,
    cniVersion: parameters["cniVersion"] ?? newestCniVersion,
    name,
  });
}

function checked(what: string, text: string, name: string): Conflist {
  try {
    return decodeConflist(text, { name });
  } catch (error) {
    throw refuse(
      error instanceof CniError ? error.code : cniCode.invalidNetworkConfig,
      `${what}: ${errorText(error)}`,
      error,
    );
  }
}
