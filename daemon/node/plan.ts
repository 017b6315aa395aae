import type { JsonObject } from "../../lib/base/json.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { conventionalKeys } from "../../lib/cni/conventions.ts";
import { undeclaredCapabilities } from "../../lib/cni/derive.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { capabilityArgsOf } from "./capability-args.ts";
import type { FamilyRules } from "./families.ts";
import type { ResolvedNetwork } from "./resolve.ts";
import type { Selected } from "./select.ts";

/** One network that will be attached to the sandbox. */
export interface PlannedAttachment {
  /** The network as people know it and as `podNetwork` tags it: `blue`, or `namespace/name` of a NAD. */
  readonly network: string;
  /** Name of the interface in the sandbox. */
  readonly ifName: string;
  /** The one that the runtime sees as the pod's network; exactly one, always the first. */
  readonly default: boolean;
  /** The network configuration as JSON text: its name is in it, and it is verbatim otherwise where it came as text. */
  readonly conflist: string;
  /** Capability arguments, before they are reduced to what a plugin declares. */
  readonly capabilityArgs: JsonObject;
  /** The selection's `cni-args`, for `args.cni` of each plugin configuration. */
  readonly cniArgs?: JsonObject;
}

/** Who owns the default route of one family. */
export interface DefaultRouteOwner {
  /** Index into the plan's attachments; undefined: nobody asked, the first attachment that brings one keeps it. */
  readonly attachment?: number;
  /** The gateway that the selection names; undefined: the attachment's own. */
  readonly gateway?: string;
  /** The family was asked for by name: a network that can't serve it is an error. */
  readonly strict: boolean;
}

/** Everything that an ADD will do, decided before the first effect. */
export interface Plan {
  /** In the order of attaching; the default one first. */
  readonly attachments: readonly PlannedAttachment[];
  /** What each attachment's result must have, by place. */
  readonly families: readonly FamilyRules[];
  readonly defaultRoute: { readonly v4: DefaultRouteOwner; readonly v6: DefaultRouteOwner };
}

/** What a plan is made of. */
export interface PlanInput {
  readonly networks: readonly ResolvedNetwork[];
  readonly mode: Selected["mode"];
  /** CNI_IFNAME: what the runtime calls the pod's interface. */
  readonly ifName: string;
  /** The runtime's own capability arguments; they are the default attachment's (spec B.7: 7.5). */
  readonly runtimeConfig: JsonObject;
}

/**
 * Decides order, interface names, capability arguments and owners of the default routes. The first attachment is the one that the
 * runtime sees and has CNI_IFNAME; the others are `net1`, `net2`, ... by their place, unless they name their interface.
 * Throws a CniError (code 106) that names the entry when names collide.
 */
export function planAttachments(input: PlanInput): Plan {
  const networks = inOrder(input);
  const names = interfaceNames(networks, input.ifName);
  const attachments = networks.map((network, place): PlannedAttachment => {
    const { selection, conflist } = network;
    const runtime =
      place === 0 ? declaredOnly(conflist, conventionalKeys(input.runtimeConfig)) : {};
    const asked = selection === undefined ? {} : capabilityArgsOf(selection);
    const cniArgs = selection?.cniArgs;
    return {
      network: network.network,
      ifName: names[place] ?? "",
      default: place === 0,
      conflist: conflist.text,
      capabilityArgs: { ...runtime, ...asked },
      ...(cniArgs === undefined ? {} : { cniArgs }),
    };
  });
  return {
    attachments,
    families: networks.map(({ ipam4, ipam6 }) => ({
      ...(ipam4 === undefined ? {} : { ipam4 }),
      ...(ipam6 === undefined ? {} : { ipam6 }),
    })),
    defaultRoute: { v4: ownerOf(networks, 4), v6: ownerOf(networks, 6) },
  };
}

/**
 * The default one first. In an explicit list that is the entry that asks for CNI_IFNAME, else the default network if it is listed,
 * else the first.
 */
function inOrder({ networks, mode, ifName }: PlanInput): readonly ResolvedNetwork[] {
  if (mode === "additional") return networks;
  const first =
    networks.find(({ selection }) => selection?.ifName === ifName) ??
    networks.find(({ isDefaultNetwork }) => isDefaultNetwork);
  if (first === undefined) return networks;
  return [first, ...networks.filter((network) => network !== first)];
}

function interfaceNames(networks: readonly ResolvedNetwork[], ifName: string): readonly string[] {
  const taken = new Map<string, ResolvedNetwork>();
  const names = networks.map((network, place) => {
    const asked = network.selection?.ifName;
    if (place === 0 && asked !== undefined && asked !== ifName) throw notFirst(network, ifName);
    const name = place === 0 ? ifName : asked;
    const other = name === undefined ? undefined : taken.get(name);
    if (name !== undefined && other !== undefined) throw collision(network, other, name);
    if (name !== undefined) taken.set(name, network);
    return name;
  });
  return names.map((name, place) => name ?? freeName(taken, place, networks[place]));
}

/** `net<place>`, or the next number that nobody asked for by name. */
function freeName(
  taken: Map<string, ResolvedNetwork>,
  place: number,
  network: ResolvedNetwork | undefined,
): string {
  let number = place;
  while (taken.has(`net${number}`)) number++;
  const name = `net${number}`;
  if (network !== undefined) taken.set(name, network);
  return name;
}

function entryText({ network, selection }: ResolvedNetwork): string {
  return `network "${network}"${selection === undefined ? "" : ` (entry ${selection.index})`}`;
}

function collision(network: ResolvedNetwork, other: ResolvedNetwork, name: string): CniError {
  const message = `${entryText(network)}: interface name "${name}" is taken by ${entryText(other)}: choose another`;
  return new CniError(cniCode.selectionInvalid, message);
}

function notFirst(network: ResolvedNetwork, ifName: string): CniError {
  const message = `${entryText(network)}: interface name "${network.selection?.ifName}": the pod's first network is the interface that the runtime names "${ifName}": leave the name out`;
  return new CniError(cniCode.selectionInvalid, message);
}

/** What the runtime offers and the network does not declare is nobody's wish, and is left out. */
function declaredOnly(conflist: Conflist, runtimeConfig: JsonObject): JsonObject {
  const undeclared = undeclaredCapabilities(conflist, runtimeConfig);
  return Object.fromEntries(
    Object.entries(runtimeConfig).filter(([name]) => !undeclared.includes(name)),
  );
}

function ownerOf(networks: readonly ResolvedNetwork[], family: 4 | 6): DefaultRouteOwner {
  const attachment = networks.findIndex(
    ({ selection }) => selection?.defaultRoute?.[family === 4 ? "v4" : "v6"] === true,
  );
  const wish = networks[attachment]?.selection?.defaultRoute;
  if (wish === undefined) return { strict: false };
  const gateway = family === 4 ? wish.gateway4 : wish.gateway6;
  return { attachment, strict: wish.strict, ...(gateway === undefined ? {} : { gateway }) };
}
