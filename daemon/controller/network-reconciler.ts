import { apiVersion, defaultNetworkName, finalizer, kinds } from "../../lib/api/names.ts";
import type { PodNetwork } from "../../lib/api/objects.ts";
import { type ObjectKey, resources } from "../../lib/kube/resource.ts";
import { CountPauses, isCountOnly, readyEvent } from "./condition-writes.ts";
import { type Condition, findCondition, mergeConditions } from "./conditions.ts";
import type { ControllerContext, LeaderPart } from "./context.ts";
import { Judge } from "./judge.ts";
import type { KeptNetwork } from "./kept-objects.ts";
import type { LiveUsers } from "./live-users.ts";
import { decideNetwork, type UserCount } from "./network-state.ts";
import { nadOf } from "./params.ts";
import { reconcile } from "./reconcile.ts";
import { type Target, writeFinalizers, writeStatus } from "./writes.ts";

/** Conditions and finalizer of every PodNetwork. */
export class NetworkReconciler implements LeaderPart {
  readonly name = "podnetworks";
  readonly #context: ControllerContext;
  readonly #judge: Judge;
  readonly #pauses = new CountPauses();
  readonly #live: LiveUsers;

  constructor(context: ControllerContext, live: LiveUsers) {
    this.#context = context;
    this.#judge = new Judge(context);
    this.#live = live;
  }

  async lead(signal: AbortSignal): Promise<void> {
    const { stores, users } = this.#context;
    const { name } = this;
    await reconcile(
      this.#context,
      {
        name,
        all: () => stores.networks.entries().map(({ key }) => key.name),
        watch: (add) => [
          stores.subscribe({
            networks: ({ name }) => add(name),
            nads: ({ namespace, name }) => {
              for (const network of this.#networksOfNad(namespace, name)) add(network);
            },
          }),
          users.subscribe({ network: add, attachment: (key) => this.#ofAttachment(key, add) }),
        ],
        work: (key, until) => this.#work(key, until),
      },
      signal,
    );
  }

  /** Pods that come through an attachment are the network's too. */
  #ofAttachment(key: string, add: (name: string) => void): void {
    const [namespace = "", name = ""] = key.split("/");
    const attachment = this.#context.stores.attachments.get({ namespace, name });
    const network = attachment?.object?.spec.podNetworkName;
    if (network !== undefined) add(network);
  }

  #networksOfNad(namespace: string, name: string): string[] {
    return this.#context.stores.networks
      .entries()
      .filter(({ value }) =>
        value.object?.spec.parametersRefs.some((ref) => {
          const nad = nadOf(ref);
          return nad?.namespace === namespace && nad.name === name;
        }),
      )
      .map(({ key }) => key.name);
  }

  async #work(name: string, signal: AbortSignal): Promise<number | undefined> {
    const { stores } = this.#context;
    const key = { namespace: "", name };
    const kept = stores.networks.get(key);
    if (kept === undefined) return undefined;
    const target = { resource: resources.podNetworks, key, kept, store: stores.networks, signal };
    if (kept.deleted !== undefined && (await this.#letGo(target, kept.deleted))) return undefined;
    if (!(await this.#protect(target))) return await this.#conditions(target);
    const protectedNow = stores.networks.get(key);
    if (protectedNow?.uid !== kept.uid) return undefined;
    return await this.#conditions({ ...target, kept: protectedNow });
  }

  /** Puts the finalizer on a network that has none; true when it wrote. `default` has none: it goes and comes at once. */
  async #protect(target: Target<PodNetwork>): Promise<boolean> {
    const { kept, key } = target;
    const isFree = kept.deleted !== undefined || key.name === defaultNetworkName;
    if (isFree || kept.finalizers.includes(finalizer)) return false;
    await writeFinalizers(this.#context, target, [...kept.finalizers, finalizer]);
    return true;
  }

  /** Takes the finalizer off a deleted network that nobody uses; true when it is off. */
  async #letGo(target: Target<PodNetwork>, deleted: string): Promise<boolean> {
    const { kept, key } = target;
    if (!kept.finalizers.includes(finalizer)) return false;
    if (key.name !== defaultNetworkName) {
      const seen = this.#holders(key.name, deleted);
      if (seen.pods + seen.attachments > 0) return false;
      // What is watched may lag behind: before it is final, the API itself is asked.
      if (await this.#live.usesNetwork(key.name, deleted, target.signal)) {
        throw new Error(`PodNetwork "${key.name}" has users that the watch does not show yet`);
      }
    }
    const others = kept.finalizers.filter((one) => one !== finalizer);
    await writeFinalizers(this.#context, target, others);
    return true;
  }

  async #conditions(target: Target<PodNetwork>): Promise<number | undefined> {
    const { kept, key } = target;
    const users = this.#users(key.name, kept);
    const { ready, conditions } = decideNetwork(kept, this.#judge.network(kept), users);
    const merged = mergeConditions({
      present: kept.conditions,
      wanted: conditions,
      generation: kept.generation,
      now: new Date().toISOString(),
    });
    if (merged === undefined) return undefined;
    if (isCountOnly(kept.conditions, conditions)) {
      const pause = this.#pauses.before(kept.uid);
      if (pause > 0) return pause;
    }
    await writeStatus(this.#context, target, { conditions: merged });
    this.#tell(key, kept, ready);
    return undefined;
  }

  #tell(key: ObjectKey, kept: KeptNetwork, ready: Condition): void {
    const event = readyEvent(findCondition(kept.conditions, "Ready"), ready);
    if (event === undefined) return;
    const { uid } = kept;
    this.#context.events.emit({ apiVersion, kind: kinds.podNetwork, ...key, uid, ...event });
  }

  #users(name: string, kept: KeptNetwork): UserCount {
    if (kept.deleted !== undefined) return this.#holders(name, kept.deleted);
    const { users } = this.#context;
    const attachments = users.attachmentsOfNetwork(name);
    return { pods: users.allPodsOfNetwork(name).size, attachments: attachments.size };
  }

  /** Those that keep a deleted network from going. */
  #holders(name: string, deleted: string): UserCount {
    const { users } = this.#context;
    const attachments = users.attachmentsOfNetwork(name);
    const pods = users.holding(users.allPodsOfNetwork(name), deleted);
    const [example] = [...pods, ...attachments].toSorted();
    return {
      pods: pods.length,
      attachments: attachments.size,
      ...(example === undefined ? {} : { example }),
    };
  }
}
