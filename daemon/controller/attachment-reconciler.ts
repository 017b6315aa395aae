import { apiVersion, finalizer, kinds } from "../../lib/api/names.ts";
import type { PodNetworkAttachment } from "../../lib/api/objects.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { keyText, type ObjectKey, resources } from "../../lib/kube/resource.ts";
import { type AttachmentInput, decideAttachment } from "./attachment-state.ts";
import { CountPauses, isCountOnly, readyEvent } from "./condition-writes.ts";
import { type Condition, findCondition, mergeConditions } from "./conditions.ts";
import type { ControllerContext, LeaderPart } from "./context.ts";
import { type Claim, Holders } from "./holders.ts";
import { Judge } from "./judge.ts";
import type { KeptAttachment } from "./kept-objects.ts";
import type { LiveUsers } from "./live-users.ts";
import { networkReady, type UserCount } from "./network-state.ts";
import { nadOf } from "./params.ts";
import { reconcile } from "./reconcile.ts";
import { type Target, writeFinalizers, writeStatus } from "./writes.ts";

/** Conditions, finalizer and holder of every PodNetworkAttachment. */
export class AttachmentReconciler implements LeaderPart {
  readonly name = "podnetworkattachments";
  readonly #context: ControllerContext;
  readonly #judge: Judge;
  readonly #pauses = new CountPauses();
  readonly #live: LiveUsers;
  readonly #holders: Holders;

  constructor(context: ControllerContext, live: LiveUsers) {
    this.#context = context;
    this.#judge = new Judge(context);
    this.#live = live;
    this.#holders = new Holders(context);
  }

  async lead(signal: AbortSignal): Promise<void> {
    const { stores, users } = this.#context;
    await reconcile(
      this.#context,
      {
        name: this.name,
        all: () => stores.attachments.entries().map(({ key }) => keyText(key)),
        watch: (add) => [
          stores.subscribe({
            attachments: (key) => add(keyText(key)),
            networks: ({ name }) => {
              for (const key of users.attachmentsOfNetwork(name)) add(key);
            },
            nads: (nad) => {
              for (const key of this.#attachmentsOfNad(nad)) add(key);
            },
          }),
          users.subscribe({ network: () => undefined, attachment: add }),
        ],
        work: (key, until) => this.#work(key, until),
      },
      signal,
    );
  }

  /** Those with it in their own references, and those of networks that have. */
  #attachmentsOfNad({ namespace, name }: ObjectKey): string[] {
    const { attachments, networks } = this.#context.stores;
    const names = (kept: { readonly object?: PodNetworkAttachment | undefined }): boolean => {
      const network = kept.object?.spec.podNetworkName ?? "";
      const of = networks.get({ namespace: "", name: network })?.object;
      const own = kept.object?.spec.parametersRefs.map((ref) => ({
        namespace: kept.object?.metadata.namespace ?? "",
        ...ref,
      }));
      return [...(own ?? []), ...(of?.spec.parametersRefs ?? [])].some((ref) => {
        const nad = nadOf(ref);
        return nad?.namespace === namespace && nad.name === name;
      });
    };
    return attachments
      .entries()
      .filter(({ value }) => names(value))
      .map(({ key }) => keyText(key));
  }

  async #work(text: string, signal: AbortSignal): Promise<number | undefined> {
    const { stores } = this.#context;
    const [namespace = "", name = ""] = text.split("/");
    const key = { namespace, name };
    const kept = stores.attachments.get(key);
    if (kept === undefined) return undefined;
    const resource = resources.podNetworkAttachments;
    const target = { resource, key, kept, store: stores.attachments, signal };
    if (kept.deleted !== undefined && (await this.#letGo(target, kept.deleted))) return undefined;
    if (!(await this.#protect(target))) return await this.#status(target);
    const protectedNow = stores.attachments.get(key);
    if (protectedNow?.uid !== kept.uid) return undefined;
    return await this.#status({ ...target, kept: protectedNow });
  }

  /** Puts the finalizer on an attachment that has none; true when it wrote. */
  async #protect(target: Target<PodNetworkAttachment>): Promise<boolean> {
    const { kept } = target;
    if (kept.deleted !== undefined || kept.finalizers.includes(finalizer)) return false;
    await writeFinalizers(this.#context, target, [...kept.finalizers, finalizer]);
    return true;
  }

  /** Takes the finalizer off a deleted attachment that no pod uses; true when it is off. */
  async #letGo(target: Target<PodNetworkAttachment>, deleted: string): Promise<boolean> {
    const { kept, key, signal } = target;
    if (!kept.finalizers.includes(finalizer)) return false;
    const text = keyText(key);
    const { users } = this.#context;
    if (users.holding(users.podsOfAttachment(text), deleted).length > 0) return false;
    // What is watched may lag behind: before it is final, the API itself is asked.
    if (await this.#live.usesAttachment(text, deleted, signal)) {
      throw new Error(`PodNetworkAttachment "${text}" has users that the watch does not show yet`);
    }
    const others = kept.finalizers.filter((one) => one !== finalizer);
    await writeFinalizers(this.#context, target, others);
    return true;
  }

  async #status(target: Target<PodNetworkAttachment>): Promise<number | undefined> {
    const { kept, key } = target;
    const claim = await this.#holders.look(key, kept, target.signal);
    const { ready, conditions } = decideAttachment(this.#input(key, kept, claim));
    const merged = mergeConditions({
      present: kept.conditions,
      wanted: conditions,
      generation: kept.generation,
      now: new Date().toISOString(),
    });
    const release: JsonObject = claim.release ? { holder: null } : {};
    if (merged === undefined && !claim.release) return undefined;
    if (!claim.release && isCountOnly(kept.conditions, conditions)) {
      const pause = this.#pauses.before(kept.uid);
      if (pause > 0) return pause;
    }
    const list = merged === undefined ? {} : { conditions: merged };
    await writeStatus(this.#context, target, { ...list, ...release });
    this.#tell(key, kept, ready);
    return undefined;
  }

  #input(key: ObjectKey, kept: KeptAttachment, claim: Claim): AttachmentInput {
    const { stores, users } = this.#context;
    const networkName = kept.object?.spec.podNetworkName ?? "";
    const network = stores.networks.get({ namespace: "", name: networkName });
    const pods = users.podsOfAttachment(keyText(key));
    const holding = kept.deleted === undefined ? [...pods] : users.holding(pods, kept.deleted);
    const count: UserCount = { pods: holding.length, attachments: 0 };
    const verdict = this.#judge.attachment(kept, network);
    const unused: UserCount = { pods: 0, attachments: 0 };
    return {
      kept,
      network,
      networkReady:
        network === undefined
          ? undefined
          : networkReady(network, this.#judge.network(network), unused),
      verdict,
      users: count,
      ...(claim.holder === undefined ? {} : { holder: claim.holder }),
      ...(claim.waiting === undefined ? {} : { waiting: claim.waiting }),
    };
  }

  #tell(key: ObjectKey, kept: KeptAttachment, ready: Condition): void {
    const event = readyEvent(findCondition(kept.conditions, "Ready"), ready);
    if (event === undefined) return;
    const { uid } = kept;
    const kind = kinds.podNetworkAttachment;
    this.#context.events.emit({ apiVersion, kind, ...key, uid, ...event });
  }
}
