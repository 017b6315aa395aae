import type { Link, Neighbour } from "../../lib/netlink/model.ts";
import { neighbourState } from "../../lib/netlink/neighbour.ts";
import type { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { Belongings, Liveness } from "../plugins/plugin.ts";
import { hostVethName } from "../plugins/shared/names.ts";
import type { NodeContext } from "./context.ts";
import { lookAround, type Sight } from "./live-namespaces.ts";
import type { SandboxRecord } from "./record.ts";

/** Somebody answered from the address not long ago. A stale entry outlives its pod by far. */
const answered =
  neighbourState.reachable | neighbourState.delay | neighbourState.probe | neighbourState.permanent;

/** How a collection decides. */
export interface LivenessOptions {
  /** true: what can't be seen to be dead is alive. false: what the runtime does not list is dead, unless it is seen alive. */
  readonly strict: boolean;
  /** Containers that the runtime says are there. */
  readonly listed?: ReadonlySet<string>;
}

/** Something that a collection did not free. */
export interface Left {
  readonly what: string;
  readonly why: string;
}

/** What lives on the node at the moment of a collection, whoever made it: a missing path or record alone proves nothing dead. */
export class NodeLiveness implements Liveness {
  readonly left: Left[] = [];
  readonly #sight: Sight;
  readonly #options: LivenessOptions;
  readonly #links: ReadonlyMap<string, Link>;
  readonly #inUse: ReadonlyMap<string, string>;

  private constructor(
    sight: Sight,
    host: { readonly links: readonly Link[]; readonly inUse: ReadonlyMap<string, string> },
    options: LivenessOptions,
  ) {
    this.#sight = sight;
    this.#links = new Map(host.links.map((link) => [link.name, link]));
    this.#inUse = host.inUse;
    this.#options = options;
  }

  static async look(node: NodeContext, options: LivenessOptions): Promise<NodeLiveness> {
    const own = String(node.hostNetns.cookie());
    const { namespaces, cgroups, blind } = await lookAround(node.hostNetns);
    const others = namespaces.filter(({ cookie }) => cookie !== own);
    const isKnown = (cookie: string): boolean =>
      node.store.all().some(({ netnsCookie }) => netnsCookie === cookie);
    // Who sees one pod of the node sees all of them.
    const sees = blind === undefined || others.some(({ cookie }) => isKnown(cookie));
    const sight = { namespaces: others, cgroups, blind: sees ? undefined : blind };
    const links = await node.host.links();
    const inUse = new Map([
      ...(await answering(node.host)),
      ...(await routedToVeth(node.host, links)),
      ...inNamespaces(others),
    ]);
    return new NodeLiveness(sight, { links, inUse }, options);
  }

  /** Why a record's sandbox may live although its path is gone; undefined: it is dead for sure. */
  ofRecord(record: SandboxRecord): string | undefined {
    const { netnsCookie, containerId, attachments } = record;
    const holder = this.#sight.namespaces.find(({ cookie }) => cookie === netnsCookie)?.holder;
    if (holder !== undefined) return `its network namespace lives, kept by ${holder}`;
    for (const { ifName } of attachments) {
      const veth = this.#vethOf(containerId, ifName);
      if (veth !== undefined) return veth;
    }
    return this.#processOf(containerId) ?? this.#unseen();
  }

  inUse({ containerId, ifName, address }: Belongings): string | undefined {
    if (this.#options.listed?.has(containerId) === true) return "the runtime lists its container";
    return (
      (ifName === undefined ? undefined : this.#vethOf(containerId, ifName)) ??
      (address === undefined ? undefined : this.#inUse.get(address)) ??
      this.#processOf(containerId) ??
      this.#unseen()
    );
  }

  leave(what: string, why: string): void {
    this.left.push({ what, why });
  }

  /** A veth ends with the namespace of either end. */
  #vethOf(containerId: string, ifName: string): string | undefined {
    const name = hostVethName(containerId, ifName);
    return this.#links.get(name)?.kind === "veth" ? `its veth "${name}" is on the node` : undefined;
  }

  /** Runtimes name the cgroups of a container by its id. */
  #processOf(containerId: string): string | undefined {
    if (containerId.length < 12) return undefined;
    for (const [pid, cgroup] of this.#sight.cgroups) {
      if (cgroup.includes(containerId)) return `process ${pid} is in a cgroup of its container`;
    }
    return undefined;
  }

  #unseen(): string | undefined {
    const { blind } = this.#sight;
    if (!this.#options.strict || blind === undefined) return undefined;
    return `whether it lives can't be seen: ${blind}`;
  }
}

async function answering(host: Rtnetlink): Promise<(readonly [string, string])[]> {
  const isAlive = ({ state }: Neighbour): boolean => (state & answered) !== 0;
  return (await host.neighbours())
    .filter(isAlive)
    .map(({ address }) => [address, "a neighbour of the node answers from it"] as const);
}

/** ptp's routes to pods. */
async function routedToVeth(
  host: Rtnetlink,
  links: readonly Link[],
): Promise<(readonly [string, string])[]> {
  const veths = new Map(
    links.filter(({ kind }) => kind === "veth").map(({ index, name }) => [index, name]),
  );
  return (await host.routes()).flatMap(({ destination, index, gateway }) => {
    const name = veths.get(index ?? 0);
    const [, address] = /^(.*)\/(?:32|128)$/.exec(destination) ?? [];
    return name === undefined || address === undefined || gateway !== undefined
      ? []
      : [[address, `the node has a route to it by "${name}"`] as const];
  });
}

function inNamespaces(
  namespaces: Sight["namespaces"],
): (readonly [address: string, why: string])[] {
  return namespaces.flatMap(({ addresses, holder }) =>
    [...addresses].map(
      (address) => [address, `it is on an interface in a namespace kept by ${holder}`] as const,
    ),
  );
}
