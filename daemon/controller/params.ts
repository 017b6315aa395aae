import { fixedAddresses } from "../../lib/api/fixed-addresses.ts";
import { defaultNetworkName, nadGroup, providers, quote } from "../../lib/api/names.ts";
import type { ParametersRef, PodNetwork } from "../../lib/api/objects.ts";
import type { Vetted } from "../../lib/api/vet-keys.ts";
import { type NetworkConfiguration, pluginsOf, vetNetwork } from "../../lib/api/vet-network.ts";
import type { Fault } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { newestCniVersion } from "../../lib/cni/types.ts";
import { faultText, type KeptNad } from "./kept-objects.ts";

/** What the controller says of a network's parameters. */
export interface Verdict {
  readonly ready: boolean;
  readonly reason: string;
  readonly message: string;
  /** Addresses that the configuration gives to each attachment. */
  readonly fixed: readonly string[];
}

/** Finds a NAD; undefined: there is none. */
export type FindNad = (namespace: string, name: string) => KeptNad | undefined;

/** Whether the parameters are podnet's business; those of another provider are vetted by that one. */
export function isOwnProvider(provider: string): boolean {
  return provider === providers.cni || provider === providers.conflist;
}

/** The NAD that a reference names, as `namespace/name`; undefined: it names something else. */
export function nadOf(ref: ParametersRef): { namespace: string; name: string } | undefined {
  const isNad = ref.group === nadGroup && /^network-?attachment-?definitions?$/i.test(ref.kind);
  return isNad ? { namespace: ref.namespace ?? "default", name: ref.name } : undefined;
}

/**
 * Vets the parameters of a network of podnet's own providers, as deeply as can be without a node. `refs`: those of a
 * PodNetworkAttachment, which stand in for the network's own; its namespace is in them.
 */
export function vetParams(
  network: PodNetwork,
  refs: readonly ParametersRef[],
  findNad: FindNad,
): Verdict {
  const { provider, parameters } = network.spec;
  const { name } = network.metadata;
  if (provider === providers.conflist) return ofNode(`CNI configuration named ${quote(name)}`);
  const chosen = refs.length > 0 ? refs : network.spec.parametersRefs;
  if (chosen.length > 0) return vetRefs(network, chosen, findNad);
  if (parameters !== undefined) return vetInline(network, parameters);
  if (name === defaultNetworkName) return ofNode("default CNI configuration");
  return refused("ParametersMissing", [
    { path: "spec", message: "has neither parameters nor parametersRefs: give one of them" },
  ]);
}

function ofNode(what: string): Verdict {
  const message = `each node's own ${what} is used`;
  return { ready: true, reason: "NodeConfiguration", message, fixed: [] };
}

function vetInline(network: PodNetwork, parameters: JsonObject): Verdict {
  const { name } = network.metadata;
  const list = parameters["plugins"] === undefined ? { plugins: [parameters] } : parameters;
  const cniVersion = parameters["cniVersion"] ?? newestCniVersion;
  const fault = undecodable(JSON.stringify({ ...list, cniVersion, name }), name);
  if (fault !== undefined) {
    return refused("ParametersInvalid", [{ path: "spec.parameters", message: fault }]);
  }
  return judge(network, pluginsOf(parameters, "spec.parameters"));
}

function vetRefs(network: PodNetwork, refs: readonly ParametersRef[], findNad: FindNad): Verdict {
  const [ref] = refs;
  const key = ref === undefined || refs.length > 1 ? undefined : nadOf(ref);
  if (key === undefined) {
    const message = `must be one NetworkAttachmentDefinition (${nadGroup}) for provider ${providers.cni}`;
    return refused("ParametersInvalid", [{ path: "spec.parametersRefs", message }]);
  }
  const title = `NetworkAttachmentDefinition ${quote(`${key.namespace}/${key.name}`)}`;
  const nad = findNad(key.namespace, key.name);
  if (nad === undefined) {
    const message = `${title} not found: create it`;
    return refused("ParametersNotFound", [{ path: "spec.parametersRefs[0]", message }]);
  }
  if (nad.object === undefined) {
    return refused("ParametersInvalid", [{ path: title, message: nad.fault ?? "can't be read" }]);
  }
  const { config } = nad.object;
  if (config === undefined) return ofNode(`CNI configuration named ${quote(key.name)}`);
  return vetConfig(network, config, { title, name: key.name });
}

function vetConfig(
  network: PodNetwork,
  config: string,
  { title, name }: { readonly title: string; readonly name: string },
): Verdict {
  const fault = undecodable(config, name);
  const path = `${title}: spec.config`;
  if (fault !== undefined) return refused("ParametersInvalid", [{ path, message: fault }]);
  const { plugins } = decodeConflist(config, { name });
  return judge(network, { plugins, at: (index) => `${path}: plugins[${index}]` });
}

/** Why the text is no network configuration; undefined when it is. */
function undecodable(text: string, name: string): string | undefined {
  try {
    decodeConflist(text, { name });
    return undefined;
  } catch (error) {
    return errorText(error);
  }
}

function judge(network: PodNetwork, configuration: NetworkConfiguration): Verdict {
  const { faults, warnings } = vetNetwork(network, configuration);
  if (faults.length > 0) return refused("ParametersInvalid", faults);
  return accepted({ faults, warnings }, fixedAddresses(configuration.plugins));
}

function accepted({ warnings }: Vetted, fixed: readonly string[]): Verdict {
  if (warnings.length === 0) {
    return { ready: true, reason: "ParametersValid", message: "parameters are valid", fixed };
  }
  const message = `parameters are valid, with warnings: ${faultText(warnings)}`;
  return { ready: true, reason: "ParametersValid", message, fixed };
}

function refused(reason: string, faults: readonly Fault[]): Verdict {
  return { ready: false, reason, message: faultText(faults), fixed: [] };
}
