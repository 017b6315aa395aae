import { accessMode } from "../../lib/api/attach-access.ts";
import { decideGrant, type GrantQuery, type GrantTarget } from "../../lib/api/grants.ts";
import { type NadRules, nadFaults } from "../../lib/api/nad-rules.ts";
import { annotations } from "../../lib/api/names.ts";
import type { Nad, ObjectMeta, PodNetwork } from "../../lib/api/objects.ts";
import { formatFault } from "../../lib/base/decode.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type NetworkSource, title } from "./networks.ts";

/** Whose networks a namespace's pods may use. */
export interface Access {
  /** The pod's namespace. */
  readonly namespace: string;
  /** That namespace as the cluster knows it; undefined where there is none. Rejects with code 11 when nobody can tell. */
  readonly describe: () => Promise<ObjectMeta | undefined>;
  readonly rules: Pick<GrantQuery, "namespaceIsolation" | "globalNamespaces">;
  /**
   * Why the pod's service account may not be attached to a PodNetwork that asks for the right to; undefined: it may. Rejects with code
   * 11 when nobody can tell. Absent: there is no cluster to ask.
   */
  readonly attachFault?: (network: string) => Promise<string | undefined>;
  /** What NADs may have; undefined: they are the admin's own. */
  readonly nads?: NadRules & { readonly trustedNadNamespaces: readonly string[] };
}

/**
 * The networks that pods of a namespace may use: every object that comes out has been granted, and NADs that tenants may write have
 * been held against the node's rules. Rejects with code 104 otherwise.
 */
export function guardNetworks(source: NetworkSource, access: Access): NetworkSource {
  return {
    podNetwork: async (name) => {
      const network = await source.podNetwork(name);
      if (network === undefined) return undefined;
      await requireGrant(access, network);
      await requireRight(access, network);
      return network;
    },
    podNetworkAttachment: (namespace, name) => source.podNetworkAttachment(namespace, name),
    nad: async (namespace, name) => {
      const nad = await source.nad(namespace, name);
      if (nad === undefined) return undefined;
      await requireGrant(access, nad);
      requireConfined(access, nad);
      return nad;
    },
    conflist: (name) => source.conflist(name),
    list: () => source.list(),
    ...(source.podCidrs === undefined ? {} : { podCidrs: source.podCidrs.bind(source) }),
  };
}

/** Whether tenants may have written a NAD of this namespace. */
export function isTenants({ nads }: Access, namespace: string): boolean {
  return nads !== undefined && !nads.trustedNadNamespaces.includes(namespace);
}

/** The default network that the pod's namespace names; undefined: none of its own. Rejects as `Access.describe`. */
export async function namespaceDefault({ describe }: Access): Promise<string | undefined> {
  const name = (await describe())?.annotations[annotations.defaultNetwork]?.trim();
  return name === "" ? undefined : name;
}

async function requireGrant(access: Access, object: PodNetwork | Nad): Promise<void> {
  const { namespace, rules } = access;
  const query = { target: targetOf(object), namespace, labels: undefined, ...rules };
  const first = decideGrant(query);
  const answer =
    first.answer === "unknown"
      ? decideGrant({ ...query, labels: (await access.describe())?.labels ?? {} })
      : first;
  if (answer.answer !== "refused") return;
  throw refused(object, `namespace "${namespace}" may not use it: ${answer.reason}`);
}

/** A PodNetwork may ask for the right to attach (annotation podnet.dev/access): that is checked after its grants. */
async function requireRight({ attachFault }: Access, network: PodNetwork): Promise<void> {
  const access = accessMode(network.metadata.annotations);
  if (access.mode === "open") return;
  if (access.mode === "faulty") throw refused(network, `nobody may use it: ${access.reason}`);
  const fault =
    attachFault === undefined
      ? `annotation ${annotations.access} asks for a right, and there is no cluster that knows it`
      : await attachFault(network.metadata.name);
  if (fault !== undefined) throw refused(network, fault);
}

function targetOf({ kind, metadata }: PodNetwork | Nad): GrantTarget {
  return { ...metadata, kind };
}

function requireConfined(access: Access, nad: Nad): void {
  const { nads } = access;
  if (nads === undefined || nad.config === undefined) return;
  if (!isTenants(access, nad.metadata.namespace)) return;
  const faults = nadFaults(readable(nad.config, nad.metadata.name)?.plugins ?? [], nads);
  if (faults.length === 0) return;
  throw refused(nad, faults.slice(0, 5).map(formatFault).join("; "));
}

/** What can't be read is refused by those who use it, with the reason. */
function readable(config: string, name: string): Conflist | undefined {
  try {
    return decodeConflist(config, { name });
  } catch {
    return undefined;
  }
}

function refused(object: PodNetwork | Nad, reason: string): CniError {
  const { metadata } = object;
  const ref =
    object.kind === "PodNetwork"
      ? ({ kind: "podNetwork", name: metadata.name } as const)
      : ({ kind: "nad", namespace: object.metadata.namespace, name: metadata.name } as const);
  return new CniError(cniCode.namespaceNotAllowed, `${title(ref)}: ${reason}`);
}
