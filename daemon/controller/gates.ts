import { schedulingGate } from "../../lib/api/names.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { keyText, type ObjectKey, objectPath, resources } from "../../lib/kube/resource.ts";
import type { ControllerContext, LeaderPart } from "./context.ts";
import {
  conditionPatch,
  decideGate,
  gatePatch,
  type PodCondition,
  statesOf,
} from "./gate-state.ts";
import type { KeptPod } from "./kept-pods.ts";
import { reconcile } from "./reconcile.ts";

type GateContext = Pick<
  ControllerContext,
  "client" | "events" | "log" | "metrics" | "stores" | "users"
>;

/** One pod that is worked on. */
interface Target {
  readonly key: ObjectKey;
  readonly pod: KeptPod;
  readonly signal: AbortSignal;
}

const longestMessage = 1_000;

/**
 * Lets pods go that wait for their networks (spec A.3.2): takes podnet's scheduling gate off as soon as each network of their list is there,
 * ready and there once. Until then a condition and an event name what is not. Writes once for each change.
 */
export class Gates implements LeaderPart {
  readonly name = "gates";
  readonly #context: GateContext;

  constructor(context: GateContext) {
    this.#context = context;
  }

  async lead(signal: AbortSignal): Promise<void> {
    const { stores, users } = this.#context;
    await reconcile(
      this.#context,
      {
        name: this.name,
        all: () => this.#gated(),
        watch: (add) => [
          stores.subscribe({
            pods: (key, pod) => {
              if (pod?.gates.includes(schedulingGate) === true) add(keyText(key));
            },
            networks: ({ name }) => {
              for (const key of users.podsOfNetwork(name)) add(key);
            },
            attachments: (attachment) => {
              for (const key of users.podsOfAttachment(keyText(attachment))) add(key);
            },
          }),
        ],
        work: (key, until) => this.#work(key, until),
      },
      signal,
    );
  }

  #gated(): string[] {
    return this.#context.stores.pods
      .entries()
      .filter(({ value }) => value.gates.includes(schedulingGate))
      .map(({ key }) => keyText(key));
  }

  async #work(text: string, signal: AbortSignal): Promise<undefined> {
    const { stores } = this.#context;
    const [namespace = "", name = ""] = text.split("/");
    const key = { namespace, name };
    const pod = stores.pods.get(key);
    if (pod === undefined) return;
    const decision = decideGate(pod, namespace, statesOf(stores));
    const target = { key, pod, signal };
    if (decision.kind === "wait") await this.#wait(target, decision);
    if (decision.kind === "release") await this.#release(target);
  }

  async #wait(target: Target, { reason, why }: { readonly reason: string; readonly why: string }) {
    const message = why.slice(0, longestMessage);
    const { networksReady } = target.pod;
    if (networksReady?.status === "False" && networksReady.message === message) return;
    await this.#condition(target, { status: "False", reason, message });
    this.#tell(target, "Warning", { reason, message });
  }

  /** The condition first: with the gate gone nobody would look at the pod again. */
  async #release({ key, pod, signal }: Target): Promise<void> {
    const waited = pod.networksReady !== undefined;
    const message = "all networks are ready";
    if (waited && pod.networksReady?.status !== "True") {
      const condition = { status: "True", reason: "NetworksReady", message } as const;
      await this.#condition({ key, pod, signal }, condition);
    }
    const now = this.#context.stores.pods.get(key);
    if (now?.uid !== pod.uid) return;
    await this.#write({ key, pod: now, signal }, { what: "gate", body: gatePatch(now) });
    if (!waited) return;
    this.#tell({ key, pod, signal }, "Normal", { reason: "NetworksReady", message });
  }

  async #condition(target: Target, condition: PodCondition): Promise<void> {
    const body = conditionPatch(target.pod, condition, new Date().toISOString());
    await this.#write(target, { what: "condition", body });
  }

  /**
   * Writes the very version that was decided about: rejects with a conflict (409) when anybody has written since. Its answer is known at
   * once, so that nothing is written twice.
   */
  async #write(
    { key, pod, signal }: Target,
    { what, body }: { readonly what: "gate" | "condition"; readonly body: JsonObject },
  ): Promise<void> {
    const { client, metrics, stores } = this.#context;
    const path = objectPath(resources.wholePods, key);
    const answer = await client.request({
      method: "PATCH",
      path: what === "condition" ? `${path}/status` : path,
      body,
      contentType: "application/strategic-merge-patch+json",
      signal,
    });
    metrics.writes.inc({ kind: "Pod", what });
    stores.pods.learn(answer, (known) => known?.version === pod.version);
  }

  #tell(
    { key, pod }: Target,
    type: "Normal" | "Warning",
    event: { readonly reason: string; readonly message: string },
  ): void {
    this.#context.events.emit({ ...key, uid: pod.uid, type, ...event });
  }
}
