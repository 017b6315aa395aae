import { errorText } from "../../../lib/base/errors.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import type { CniRequest } from "../../../lib/cni/request.ts";
import { Backoff } from "../../../lib/kube/backoff.ts";
import { KubeError } from "../../../lib/kube/error.ts";
import { type EmittedEvent, ObjectEvents } from "../../../lib/kube/events.ts";
import { keyText, type ObjectKey, objectPath, resources } from "../../../lib/kube/resource.ts";
import type { NodeContext } from "../context.ts";
import type { PodNames } from "../notices.ts";
import { podOf } from "../pods.ts";
import type { RecordKey, SandboxRecord } from "../record.ts";
import { reopenSandbox } from "../sandbox.ts";
import { failureReason } from "./events.ts";
import { isSame, type KubePod } from "./kept-pod.ts";
import type { KubeNode } from "./node.ts";
import { type StatusAnnotations, statusOf } from "./publish-state.ts";

/** Pods that are written at once. */
const sideBySide = 4;

type Parts = Pick<NodeContext, "store" | "bootId" | "log" | "notices"> & {
  readonly kube: KubeNode;
  readonly nodeName: string;
};

/**
 * Tells pods what they got: status annotations and events, behind the answers and never in their way. What is to be written is
 * worked out from the records when its turn comes, so that several changes become one write, and a restart loses nothing: at its
 * start every pod of the records is looked at.
 */
export class Publisher implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #events: ObjectEvents;
  readonly #stopping = new AbortController();
  readonly #notices = new DisposableStack();
  /** Pods that wait, in order; one that is being written may wait again. */
  readonly #waiting = new Map<string, ObjectKey>();
  readonly #writing = new Set<string>();
  readonly #workers = new Set<Promise<void>>();
  /** Pods whose last attempt failed. */
  readonly #pauses = new Map<string, Pause>();

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#events = new ObjectEvents(
      parts.kube.client,
      { component: "podnetd", host: parts.nodeName },
      parts.log,
    );
    this.#notices.use(parts.notices.onPending((record, failure) => this.#stuck(record, failure)));
    this.#notices.use(parts.notices.onIgnored((pod, warning) => this.#ignored(pod, warning)));
    this.#track(this.#lookAtAll());
  }

  /** Pods whose status is not written yet. */
  get waiting(): number {
    return new Set([...this.#waiting.keys(), ...this.#writing, ...this.#pauses.keys()]).size;
  }

  /** Events that were not written since the start. */
  get droppedEvents(): number {
    return this.#events.dropped;
  }

  /** Events on a pod of late, oldest first. */
  eventsOf(namespace: string, name: string): EmittedEvent[] {
    return this.#events.about(namespace, name);
  }

  /** After a CNI call was answered. Never throws, never waits. */
  answered(request: CniRequest | undefined, failure?: CniError): void {
    if (request === undefined || this.#stopping.signal.aborted) return;
    const pod = podOf(request.args);
    if (pod.namespace === undefined || pod.name === undefined) return;
    const { namespace, name, uid = "" } = pod;
    if (failure !== undefined) this.#refused(request, { namespace, name, uid }, failure);
    else if (request.verb === "ADD") {
      this.#attached(request, { namespace, name, uid });
      this.#enqueue({ namespace, name });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping.abort();
    this.#notices[Symbol.dispose]();
    for (const { timer } of this.#pauses.values()) clearTimeout(timer);
    await this.#events.stop();
    await Promise.all(this.#workers);
  }

  #attached(request: RecordKey, pod: EventPod): void {
    const record = this.#parts.store.get(request);
    if (record === undefined) return;
    const parts = record.attachments.map(({ ifName, network, result }) => {
      const ips = result?.ips.map(({ address }) => address).join(" ") ?? "";
      return `${ifName} [${ips}] from ${network}`;
    });
    const message = `Added ${parts.join(", ")}`;
    this.#events.emit({ ...pod, type: "Normal", reason: "AttachedNetwork", message });
    for (const { network, provider, ifName } of record.leftAlone ?? []) {
      const left = `network "${network}" is left to its provider "${provider}" (interface "${ifName}" is free for it)`;
      this.#events.emit({ ...pod, type: "Normal", reason: "LeftToProvider", message: left });
    }
  }

  /** Whatever tried to give it back: a DEL, a failed ADD, a start, GC. A DEL's own failure is the same text, and so counts as the same event. */
  #stuck({ pod: { namespace, name, uid = "" } }: SandboxRecord, { message }: CniError): void {
    if (namespace === undefined || name === undefined || this.#stopping.signal.aborted) return;
    const event = { namespace, name, uid, type: "Warning" as const };
    this.#events.emit({ ...event, reason: "DetachPending", message });
  }

  /** The pod runs, without the networks that it asked for. */
  #ignored({ namespace, name, uid = "" }: PodNames, message: string): void {
    if (namespace === undefined || name === undefined || this.#stopping.signal.aborted) return;
    const event = { namespace, name, uid, type: "Warning" as const };
    this.#events.emit({ ...event, reason: "SelectionIgnored", message });
  }

  #refused({ verb }: CniRequest, pod: EventPod, { code, message }: CniError): void {
    if (verb === "ADD") {
      const reason = failureReason(code, message);
      this.#events.emit({ ...pod, type: "Warning", reason, message });
    } else if (verb === "DEL") {
      this.#events.emit({ ...pod, type: "Warning", reason: "DetachPending", message });
    }
  }

  async #lookAtAll(): Promise<void> {
    const { store, kube } = this.#parts;
    const stopped = new Promise<void>((resolve) =>
      this.#stopping.signal.addEventListener("abort", () => resolve(), { once: true }),
    );
    await Promise.race([kube.pods.lookup.reflector.ready(), stopped]);
    for (const { phase, pod } of store.all()) {
      if (phase !== "attached" || pod.namespace === undefined || pod.name === undefined) continue;
      this.#enqueue({ namespace: pod.namespace, name: pod.name });
    }
  }

  #enqueue(key: ObjectKey): void {
    if (this.#stopping.signal.aborted) return;
    this.#waiting.set(keyText(key), key);
    this.#next();
  }

  #next(): void {
    for (const [text, key] of this.#waiting) {
      if (this.#writing.size >= sideBySide) return;
      if (this.#writing.has(text)) continue;
      this.#waiting.delete(text);
      this.#writing.add(text);
      this.#track(
        this.#write(key).finally(() => {
          this.#writing.delete(text);
          if (!this.#stopping.signal.aborted) this.#next();
        }),
      );
    }
  }

  #track(work: Promise<void>): void {
    const tracked = work
      .catch((error: unknown) => {
        this.#parts.log.error({ fault: errorText(error) }, "status not published");
      })
      .finally(() => this.#workers.delete(tracked));
    this.#workers.add(tracked);
  }

  /** One attempt. What fails comes back after a pause, in which others have their turn. */
  async #write(key: ObjectKey): Promise<void> {
    const text = keyText(key);
    try {
      await this.#writeOnce(key);
      this.#pauses.delete(text);
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      if (isFinal(error)) {
        this.#pauses.delete(text);
        this.#parts.log.warn({ pod: text, fault: errorText(error) }, "status not published");
        return;
      }
      this.#later(key, error instanceof KubeError ? error.retryAfter : undefined);
    }
  }

  #later(key: ObjectKey, least: number | undefined): void {
    const text = keyText(key);
    const pause = this.#pauses.get(text) ?? { backoff: new Backoff(), timer: undefined };
    clearTimeout(pause.timer);
    pause.timer = setTimeout(() => this.#enqueue(key), pause.backoff.next(least)).unref();
    this.#pauses.set(text, pause);
  }

  async #writeOnce(key: ObjectKey): Promise<void> {
    const record = this.#recordOf(key);
    if (record === undefined) return;
    const pod = await this.#podOf(key, record);
    const status = pod === undefined ? undefined : await this.#statusOf(record);
    if (pod === undefined || status === undefined || isWritten(pod, status)) return;
    try {
      await this.#parts.kube.client.request({
        method: "PATCH",
        path: `${objectPath(resources.pods, key)}/status`,
        contentType: "application/merge-patch+json",
        // The uid makes the server refuse when another pod has the name by now.
        body: { metadata: { uid: pod.uid, annotations: status } },
        accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        signal: this.#stopping.signal,
      });
    } catch (error) {
      if (!(error instanceof KubeError)) throw error;
      if (error.status === 404) return;
      // Refused for the uid: the look at the pod before the next attempt tells.
      if (error.status === 409) await this.#parts.kube.pods.lookup.ask(key);
      throw error;
    }
  }

  /** The newest sandbox of the pod counts. */
  #recordOf({ namespace, name }: ObjectKey): SandboxRecord | undefined {
    return this.#parts.store
      .all()
      .filter(
        ({ phase, pod }) =>
          phase === "attached" && pod.namespace === namespace && pod.name === name,
      )
      .toSorted((a, b) => a.created.localeCompare(b.created))
      .at(-1);
  }

  /** undefined: the pod is gone, or another one has its name. */
  async #podOf(key: ObjectKey, { pod: { uid } }: SandboxRecord): Promise<KubePod | undefined> {
    const { lookup } = this.#parts.kube.pods;
    const known = await lookup.find(key);
    if (known !== undefined && isSame(known, uid)) return known;
    const live = await lookup.ask(key);
    return live !== undefined && isSame(live, uid) ? live : undefined;
  }

  async #statusOf(record: SandboxRecord): Promise<StatusAnnotations | undefined> {
    using sandbox = reopenSandbox(this.#parts.bootId, record);
    return sandbox === undefined ? undefined : await statusOf(record, sandbox);
  }
}

interface Pause {
  readonly backoff: Backoff;
  timer: NodeJS.Timeout | undefined;
}

interface EventPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

function isWritten({ annotations }: KubePod, status: StatusAnnotations): boolean {
  return Object.entries(status).every(([key, value]) => annotations[key] === value);
}

/** What no repetition makes better; a conflict, a full server and one that is away are no such thing. */
function isFinal(error: unknown): boolean {
  if (error instanceof CniError) return false;
  if (!(error instanceof KubeError)) return true;
  return error.status === 400 || error.status === 422;
}
