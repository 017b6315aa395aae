import { nadApiVersion, providers } from "../../lib/api/names.ts";
import type { Nad, ParametersRef, PodNetwork } from "../../lib/api/objects.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { newestCniVersion } from "../../lib/cni/types.ts";
import type { NetworkSource } from "./networks.ts";

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
 * (not usable now), 102 (a NAD that it names is missing) or 7 (wrong configuration).
 */
export async function podNetworkConflist(
  source: NetworkSource,
  network: PodNetwork,
  refs: readonly ParametersRef[] = [],
): Promise<Conflist> {
  const { name, deletionTimestamp } = network.metadata;
  const { enabled, provider, parameters } = network.spec;
  if (!enabled) {
    throw refuse(
      cniCode.podNetworkNotReady,
      `PodNetwork "${name}" is disabled: set spec.enabled to true`,
    );
  }
  if (deletionTimestamp !== undefined) {
    throw refuse(cniCode.podNetworkNotReady, `PodNetwork "${name}" is being deleted`);
  }
  if (provider === providers.conflist) return await nodeConflist(source, name);
  if (provider !== providers.cni) {
    const message = `PodNetwork "${name}": provider "${provider}" is not handled on this node`;
    throw refuse(cniCode.podNetworkNotReady, message);
  }
  const chosen = refs.length > 0 ? refs : network.spec.parametersRefs;
  if (chosen.length > 0) return await referredConflist(source, name, chosen);
  if (parameters !== undefined)
    return checked(`PodNetwork "${name}"`, parametersText(name, parameters), name);
  const message = `PodNetwork "${name}" has neither spec.parameters nor spec.parametersRefs: there is nothing to attach with`;
  throw refuse(cniCode.podNetworkNotReady, message);
}

/** The configuration of a NAD, or the node's own of the same name (spec B.1). Rejects with code 102 or 7. */
export async function nadConflist(source: NetworkSource, nad: Nad): Promise<Conflist> {
  const { namespace, name } = nad.metadata;
  const what = `NetworkAttachmentDefinition "${namespace}/${name}"`;
  if (nad.config !== undefined) return checked(`${what}: spec.config`, nad.config, name);
  const found = await source.conflist(name);
  if (found !== undefined) return found;
  throw refuse(
    cniCode.nadMissing,
    `${what} has no spec.config, and the node has no CNI configuration named "${name}"`,
  );
}

async function nodeConflist(source: NetworkSource, name: string): Promise<Conflist> {
  const found = await source.conflist(name);
  if (found !== undefined) return found;
  const message = `PodNetwork "${name}": the node has no CNI configuration named "${name}" for provider ${providers.conflist}`;
  throw refuse(cniCode.podNetworkNotReady, message);
}

/** A PodNetwork whose parameters are one NAD. */
async function referredConflist(
  source: NetworkSource,
  network: string,
  refs: readonly ParametersRef[],
): Promise<Conflist> {
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
  return await nadConflist(source, nad);
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
