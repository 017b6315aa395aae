import { setImmediate as turn } from "node:timers/promises";
import { defaultNetworkName } from "../../../lib/api/names.ts";
import { type NetworkRef, refName } from "../../../lib/api/selection.ts";
import { errorText } from "../../../lib/base/errors.ts";
import type { NodeContext } from "../context.ts";
import { type NetworkSource, title } from "../networks.ts";
import { resolveRef } from "../resolve-ref.ts";
import { configurationFaults } from "../vet-preview.ts";
import { error, type Finding, ok, orFine, warn } from "./finding.ts";

/** What networks are examined with. */
export type NetworkParts = Pick<NodeContext, "networks" | "plugins" | "config">;

/** So many NetworkAttachmentDefinitions of a cluster are looked into: tenants write them. */
const mostExtra = 500;
/** Characters of a network's one line. */
const longestText = 500;

/** Networks that can't be used, as errors; and those that would fail on this node by their configuration, as warnings: one line each. */
export async function networkFindings(parts: NetworkParts): Promise<Finding[]> {
  const { networks } = parts;
  const known = await networks.list();
  const extra = (await networks.extra?.()) ?? [];
  const findings = known.flatMap(({ fault, ref }) => {
    const todo = "correct it: pods that ask for it fail";
    return fault === undefined
      ? []
      : [error("networks", `"${ref.name}" can't be used: ${fault}`, todo)];
  });
  for (const fault of (await networks.unreadable?.()) ?? []) {
    findings.push(error("networks", fault, "correct it: its networks are not known"));
  }
  const sound = known.filter(({ fault }) => fault === undefined);
  for (const ref of [...sound.map((one) => one.ref), ...extra.slice(0, mostExtra)]) {
    findings.push(...(await vet(parts, ref)));
    // Tenants' objects may be large, and attaching must not wait for all of them.
    await turn();
  }
  const number = known.length + extra.length;
  return orFine(findings, ok("networks", `${number} known, all can be used`));
}

async function vet(parts: NetworkParts, ref: NetworkRef): Promise<Finding[]> {
  // What an attachment in a namespace adds to its network concerns the pods that use it.
  if (ref.kind === "podNetworkAttachment") return [];
  const text = (await faultsOf(parts, ref)).join("; ");
  if (text === "") return [];
  const named = text.startsWith(title(ref)) ? text : `${title(ref)}: ${text}`;
  const short = named.length > longestText ? `${named.slice(0, longestText)}...` : named;
  return [warn("networks", short, "correct it: pods that ask for it here fail")];
}

async function faultsOf(parts: NetworkParts, ref: NetworkRef): Promise<string[]> {
  const { networks } = parts;
  const places = { source: networks, all: networks, defaultName: defaultNetworkName };
  try {
    if (await isOff(networks, ref)) return [];
    const found = await resolveRef(places, ref);
    return "provider" in found ? [] : await configurationFaults(parts, found);
  } catch (cause) {
    return [errorText(cause)];
  }
}

/** It has gone meanwhile, or nobody expects to attach to it. */
async function isOff(source: NetworkSource, ref: NetworkRef): Promise<boolean> {
  if (ref.kind === "nad") return (await source.nad(ref.namespace, ref.name)) === undefined;
  const network = await source.podNetwork(refName(ref));
  if (network === undefined) return true;
  return !network.spec.enabled || network.metadata.deletionTimestamp !== undefined;
}
