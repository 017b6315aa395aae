import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { ApiServer } from "./apiserver.ts";
import { boxImage } from "./whole-cluster-kubelet.ts";
import type { ClusterNode } from "./whole-cluster-node.ts";
import type { KubeObject } from "./whole-cluster-object.ts";

/** Folder of the node in which the first process of each pod says what interfaces it found, before anything else. */
const records = "/var/lib/podnet-test/records";

export interface PodWish {
  readonly namespace?: string;
  readonly name: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  /** Of the one container. */
  readonly resources?: object;
}

/** One interface as a pod's first process saw it. */
export interface SeenInterface {
  readonly name: string;
  readonly ips: readonly string[];
}

/** The kernel's own list, then nothing until it is told to end. */
const script = [
  "trap 'exit 0' TERM",
  'ip -o addr > "/records/$POD_UID.new" && mv "/records/$POD_UID.new" "/records/$POD_UID"',
  "while :; do sleep 1000 & wait; done",
].join("\n");

/** `metadata` and `spec` of a pod, or of a Deployment's template. */
export function podTemplate({
  annotations = {},
  labels = {},
  resources = {},
}: Omit<PodWish, "name">): {
  metadata: object;
  spec: object;
} {
  const uid = { name: "POD_UID", valueFrom: { fieldRef: { fieldPath: "metadata.uid" } } };
  const container = {
    name: "box",
    image: boxImage,
    imagePullPolicy: "Never",
    args: ["-c", script],
    env: [uid],
    resources,
    volumeMounts: [{ name: "records", mountPath: "/records" }],
  };
  const hostPath = { path: records, type: "DirectoryOrCreate" };
  return {
    metadata: { annotations, labels },
    spec: {
      terminationGracePeriodSeconds: 2,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      containers: [container],
      volumes: [{ name: "records", hostPath }],
    },
  };
}

/** What pods need of their cluster. */
export interface PodsCluster {
  readonly api: ApiServer;
  readonly node: ClusterNode;
  request(method: "POST" | "GET" | "DELETE", path: string, body?: unknown): Promise<KubeObject>;
  get(path: string): Promise<KubeObject | undefined>;
  exec(pod: string, ...command: string[]): string;
  eventually<T>(
    what: string,
    ask: () => T | undefined | Promise<T | undefined>,
    options?: { seconds?: number; about?: () => string },
  ): Promise<T>;
  logs(): string;
}

/** Pods of a test in a whole cluster. */
export class ClusterPods {
  readonly #cluster: PodsCluster;

  constructor(cluster: PodsCluster) {
    this.#cluster = cluster;
  }

  async create(wish: PodWish): Promise<KubeObject> {
    const { namespace = "default", name } = wish;
    const { metadata, spec } = podTemplate(wish);
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { ...metadata, name }, spec };
    return await this.#cluster.request("POST", `/api/v1/namespaces/${namespace}/pods`, pod);
  }

  async list(namespace = "default", labels = ""): Promise<KubeObject[]> {
    const query = labels === "" ? "" : `?labelSelector=${encodeURIComponent(labels)}`;
    const { items } = await this.#cluster.request(
      "GET",
      `/api/v1/namespaces/${namespace}/pods${query}`,
    );
    return items;
  }

  /** The pod once it runs. */
  async running(path: string, seconds = 180): Promise<KubeObject> {
    const [namespace = "", name = ""] = path.split("/");
    const at = `/api/v1/namespaces/${namespace}/pods/${name}`;
    return await this.#cluster.eventually(
      `pod "${path}" running`,
      async () => {
        const pod = await this.#cluster.get(at);
        return pod?.status.phase === "Running" ? pod : undefined;
      },
      { seconds, about: () => `${this.events(path).join("\n")}\n${this.#cluster.logs()}` },
    );
  }

  /** Creates a pod and waits until it runs. */
  async run(wish: PodWish): Promise<KubeObject> {
    await this.create(wish);
    return await this.running(`${wish.namespace ?? "default"}/${wish.name}`);
  }

  /**
   * Asks for the end of pods without waiting for it: this kubelet keeps a pod in the API until it collects its sandbox, once a
   * minute, long after it has taken the pod down.
   */
  async end(...paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      const [namespace, name] = path.split("/");
      await this.#cluster.request("DELETE", `/api/v1/namespaces/${namespace}/pods/${name}`);
    }
  }

  /** Ends pods and waits until the API has them no more. */
  async delete(...paths: readonly string[]): Promise<void> {
    await this.end(...paths);
    for (const path of paths) {
      const [namespace, name] = path.split("/");
      const at = `/api/v1/namespaces/${namespace}/pods/${name}`;
      await this.#cluster.eventually(
        `pod "${path}" gone`,
        async () => ((await this.#cluster.get(at)) === undefined ? true : undefined),
        { seconds: 120, about: () => this.#cluster.logs() },
      );
    }
  }

  /** Events on the pod: `reason: message`. */
  events(path: string): string[] {
    const [namespace = "", name = ""] = path.split("/");
    const list = this.#cluster.api.get("events", "-n", namespace);
    return list.items
      .filter((event: KubeObject) => event.involvedObject.name === name)
      .map((event: KubeObject) => `${event.reason}: ${event.message}`);
  }

  /** What the pod's first process found, loopback left out; undefined: it has not said yet. */
  seen(pod: KubeObject): SeenInterface[] | undefined {
    const file = `${records}/${pod.metadata.uid}`;
    if (!this.#cluster.node.exists(file)) return undefined;
    return interfaces(this.#cluster.node.read(file));
  }

  /** Forgets what all pods have said; the node may be down. */
  forgetSeen(): void {
    const folder = join(this.#cluster.node.folder, "upper", records);
    for (const name of readdirSync(folder)) rmSync(join(folder, name));
  }

  /** What the pod's kernel state is now, through exec. */
  interfaces(path: string): SeenInterface[] {
    return interfaces(this.#cluster.exec(path, "ip", "-o", "addr"));
  }

  annotation(pod: KubeObject, key: string): KubeObject | undefined {
    const text = pod.metadata.annotations?.[key];
    return text === undefined ? undefined : JSON.parse(text);
  }

  /** The status annotation of that key once it is there. */
  async status(path: string, key = "podnet.dev/network-status"): Promise<KubeObject> {
    const [namespace = "", name = ""] = path.split("/");
    return await this.#cluster.eventually(`${key} of "${path}"`, async () => {
      const pod = await this.#cluster.get(`/api/v1/namespaces/${namespace}/pods/${name}`);
      return this.annotation(pod, key);
    });
  }
}

/** `ip -o addr` of busybox: a line a family, and one without an address for a link that has none. */
function interfaces(text: string): SeenInterface[] {
  const found = new Map<string, string[]>();
  for (const line of text.split("\n")) {
    const { name, rest } = /^\d+: (?<name>[^\s@:]+)\S*\s+(?<rest>.*)$/.exec(line)?.groups ?? {};
    if (name === undefined || name === "lo") continue;
    const ips = found.get(name) ?? [];
    found.set(name, ips);
    const ip = /^inet6? (?<ip>[^/]+)\/.*scope global/.exec(rest ?? "")?.groups?.["ip"];
    if (ip !== undefined) ips.push(ip);
  }
  return [...found]
    .map(([name, ips]) => ({ name, ips }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
}
