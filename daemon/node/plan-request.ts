import { podAnnotationsCapability } from "../../lib/api/names.ts";
import { isJsonObject, type JsonObject } from "../../lib/base/json.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import type { Access } from "./access.ts";
import { bringsDefaultRoute } from "./brought-routes.ts";
import type { NodeContext } from "./context.ts";
import { type DefaultRouteOwner, type LeftAlone, type Plan, planAttachments } from "./plan.ts";
import { podOf } from "./pods.ts";
import { resolveNetworks } from "./resolve.ts";
import { podAnnotations, podNamespace, type Selected, selectNetworks } from "./select.ts";
import { configurationFaults } from "./vet-preview.ts";

/** The parts of an ADD request that say which networks it is for. */
export interface PlanRequest {
  readonly config: JsonObject;
  readonly args: ReadonlyMap<string, string>;
  readonly ifName: string;
}

/**
 * Decides everything that an ADD will do: what is selected, what that resolves to, names, routes. Changes nothing. Rejects with a
 * CniError that names network, entry and field.
 */
export async function planRequest(node: NodeContext, request: PlanRequest): Promise<Plan> {
  const { args, ifName } = request;
  const config = await withAnnotations(node, request);
  const selected = selectNetworks({ config, args, policy: node.config.selectionPolicy });
  warn(node, args, selected);
  const { requireDefaultPodNetwork } = node.config;
  const options = { requireDefaultPodNetwork, access: accessOf(node, args) };
  const { networks, foreign } = await resolveNetworks(node.networks, selected, options);
  const runtimeConfig = isJsonObject(config["runtimeConfig"]) ? config["runtimeConfig"] : {};
  return planAttachments({ networks, foreign, mode: selected.mode, ifName, runtimeConfig });
}

/** The request with the pod's annotations in it: from the runtime, else from the cluster's API. */
async function withAnnotations(
  { kube }: NodeContext,
  { config, args }: PlanRequest,
): Promise<JsonObject> {
  if (kube === undefined || podAnnotations(config) !== undefined) return config;
  const annotations = await kube.pods.annotations(args);
  if (annotations === undefined) return config;
  const runtimeConfig = isJsonObject(config["runtimeConfig"]) ? config["runtimeConfig"] : {};
  return {
    ...config,
    runtimeConfig: { ...runtimeConfig, [podAnnotationsCapability]: annotations },
  };
}

/** What the pod's namespace may use. Without a cluster nobody knows namespaces but by name, and all NADs are the admin's. */
function accessOf({ kube, config }: NodeContext, args: ReadonlyMap<string, string>): Access {
  const namespace = podNamespace(args);
  return {
    namespace,
    rules: config,
    describe: async () => await kube?.namespace(namespace),
    ...(kube === undefined
      ? {}
      : { nads: config, attachFault: (network) => kube.attachFault(args, network) }),
  };
}

function warn(
  { log, notices }: NodeContext,
  args: ReadonlyMap<string, string>,
  { warnings }: Selected,
): void {
  for (const warning of warnings) {
    log.warn({ fault: warning }, "selection");
    notices.ignored(podOf(args), warning);
  }
}

/** A pod as a person describes it, for a dry run. */
export interface Wish {
  readonly annotations: Readonly<Record<string, string>>;
  readonly namespace: string;
  readonly ifName: string;
}

/** One network that a pod would get. */
export interface PreviewRow {
  readonly network: string;
  readonly interface: string;
  readonly default: boolean;
  readonly plugins: readonly string[];
  readonly ipam: readonly string[];
  /** Families whose default route it would own: as it was asked to, else as the first whose configuration brings one. */
  readonly defaultRoute: readonly string[];
  /** The resource whose next device of the pod it would get. */
  readonly resource?: string;
  /** Of a network that podnet leaves alone: who attaches it. */
  readonly provider?: string;
  /** What in the network's configuration would make the ADD fail. */
  readonly faults: readonly string[];
}

/** What a pod with these annotations would get. Changes nothing; rejects as `planRequest`. */
export async function previewPlan(node: NodeContext, wish: Wish): Promise<PreviewRow[]> {
  const { attachments, leftAlone, defaultRoute } = await planRequest(node, {
    config: { runtimeConfig: { [podAnnotationsCapability]: wish.annotations } },
    args: new Map([["K8S_POD_NAMESPACE", wish.namespace]]),
    ifName: wish.ifName,
  });
  const lists = attachments.map(({ conflist }) => decodeConflist(conflist));
  const owner4 = owned(defaultRoute.v4, lists, 4);
  const owner6 = owned(defaultRoute.v6, lists, 6);
  const rows = attachments.map(async (attachment, place): Promise<PreviewRow> => {
    const { network, ifName, default: isDefault, conflist, resourceName } = attachment;
    const list = decodeConflist(conflist);
    const { plugins } = list;
    return {
      network,
      interface: ifName,
      default: isDefault,
      plugins: plugins.map(({ type }) => type),
      ipam: plugins.flatMap(({ ipam }) => ipam?.type ?? []),
      defaultRoute: [...ownedRoute("IPv4", owner4, place), ...ownedRoute("IPv6", owner6, place)],
      ...(resourceName === undefined ? {} : { resource: resourceName }),
      faults: await configurationFaults(node, {
        network,
        conflist: list,
        ...(resourceName === undefined ? {} : { resourceName }),
      }),
    };
  });
  return [...(await Promise.all(rows)), ...leftAlone.map(leftRow)];
}

function leftRow({ network, provider, ifName }: LeftAlone): PreviewRow {
  const none = { plugins: [], ipam: [], defaultRoute: [], faults: [] };
  return { network, interface: ifName, default: false, ...none, provider };
}

/** Where nobody asked, the first attachment that brings one keeps it. */
function owned(
  owner: DefaultRouteOwner,
  lists: readonly Conflist[],
  family: 4 | 6,
): DefaultRouteOwner {
  if (owner.attachment !== undefined) return owner;
  return { ...owner, attachment: lists.findIndex((list) => bringsDefaultRoute(list, family)) };
}

function ownedRoute(family: string, owner: DefaultRouteOwner, place: number): string[] {
  if (owner.attachment !== place) return [];
  return [owner.gateway === undefined ? family : `${family} via ${owner.gateway}`];
}
