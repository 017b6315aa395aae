import type { FixedAttachment } from "../../lib/api/fixed-addresses.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import { conventionalKeys } from "../../lib/cni/conventions.ts";
import { undeclaredCapabilities } from "../../lib/cni/derive.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { capabilityArgsOf } from "./capability-args.ts";
import type { FamilyRules } from "./families.ts";
import type { ForeignNetwork, ResolvedNetwork } from "./resolve.ts";
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
  /** The resource whose next device it gets. */
  readonly resourceName?: string;
  /** Addresses that one pod at a time can have, and the object that says so. */
  readonly fixed?: FixedAttachment;
}

/** A network of the selection that another provider attaches, and the interface name that is left to it. */
export interface LeftAlone {
  readonly network: string;
  readonly provider: string;
  readonly ifName: string;
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
  /** What of the selection is not podnet's to attach. */
  readonly leftAlone: readonly LeftAlone[];
  /** What each attachment's result must have, by place. */
  readonly families: readonly FamilyRules[];
  readonly defaultRoute: { readonly v4: DefaultRouteOwner; readonly v6: DefaultRouteOwner };
}

/** What a plan is made of. */
export interface PlanInput {
  readonly networks: readonly ResolvedNetwork[];
  /** By their places. */
  readonly foreign?: readonly ForeignNetwork[];
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
  const named = withNames(inOrder(input), input.ifName);
  const own = named.flatMap(({ entry, ifName }) =>
    "conflist" in entry ? [{ network: entry, ifName }] : [],
  );
  const networks = own.map(({ network }) => network);
  return {
    attachments: own.map(({ network, ifName }, place) =>
      planOne(network, { ifName, place, runtimeConfig: input.runtimeConfig }),
    ),
    leftAlone: named.flatMap(({ entry, ifName }) =>
      "provider" in entry ? [{ network: entry.network, provider: entry.provider, ifName }] : [],
    ),
    families: networks.map(({ ipam4, ipam6 }) => ({
      ...(ipam4 === undefined ? {} : { ipam4 }),
      ...(ipam6 === undefined ? {} : { ipam6 }),
    })),
    defaultRoute: { v4: ownerOf(networks, 4), v6: ownerOf(networks, 6) },
  };
}

interface At {
  readonly ifName: string;
  readonly place: number;
  readonly runtimeConfig: JsonObject;
}

function planOne(network: ResolvedNetwork, { ifName, place, runtimeConfig }: At) {
  const { selection, conflist, resourceName, fixed } = network;
  const runtime = place === 0 ? declaredOnly(conflist, conventionalKeys(runtimeConfig)) : {};
  const asked = selection === undefined ? {} : capabilityArgsOf(selection);
  const cniArgs = selection?.cniArgs;
  return {
    network: network.network,
    ifName,
    default: place === 0,
    conflist: conflist.text,
    capabilityArgs: { ...runtime, ...asked },
    ...(cniArgs === undefined ? {} : { cniArgs }),
    ...(resourceName === undefined ? {} : { resourceName }),
    ...(fixed === undefined ? {} : { fixed }),
  } satisfies PlannedAttachment;
}

type Entry = ResolvedNetwork | ForeignNetwork;

/**
 * The default one first. In an explicit list that is the entry that asks for CNI_IFNAME, else the default network if it is listed,
 * else the first. Networks of other providers keep their places, so that names by place are theirs as well.
 */
function inOrder({ networks, mode, ifName, foreign = [] }: PlanInput): readonly Entry[] {
  if (mode === "additional") return networks;
  const all: Entry[] = [...networks];
  for (const entry of foreign) all.splice(entry.place, 0, entry);
  const first =
    networks.find(({ selection }) => selection?.ifName === ifName) ??
    networks.find(({ isDefaultNetwork }) => isDefaultNetwork) ??
    networks[0];
  if (first === undefined) return all;
  return [first, ...all.filter((entry) => entry !== first)];
}

function withNames(entries: readonly Entry[], ifName: string) {
  const taken = new Map<string, Entry>();
  const names = entries.map((entry, place) => {
    const asked = entry.selection?.ifName;
    if (place === 0 && asked !== undefined && asked !== ifName) throw notFirst(entry, ifName);
    const name = place === 0 ? ifName : asked;
    const other = name === undefined ? undefined : taken.get(name);
    if (name !== undefined && other !== undefined) throw collision(entry, other, name);
    if (name !== undefined) taken.set(name, entry);
    return name;
  });
  return entries.map((entry, place) => ({
    entry,
    ifName: names[place] ?? freeName(taken, place, entry),
  }));
}

/** `net<place>`, or the next number that nobody asked for by name. */
function freeName(taken: Map<string, Entry>, place: number, entry: Entry): string {
  let number = place;
  while (taken.has(`net${number}`)) number++;
  const name = `net${number}`;
  taken.set(name, entry);
  return name;
}

function entryText({ network, selection }: Entry): string {
  return `network "${network}"${selection === undefined ? "" : ` (entry ${selection.index})`}`;
}

function collision(network: Entry, other: Entry, name: string): CniError {
  const message = `${entryText(network)}: interface name "${name}" is taken by ${entryText(other)}: choose another`;
  return new CniError(cniCode.selectionInvalid, message);
}

function notFirst(network: Entry, ifName: string): CniError {
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
