import { globSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import { ApiServer } from "./apiserver.ts";
import { Daemon } from "./daemon.ts";
import { Lab, type Place } from "./lab.ts";
import { type PluginAnswer, runPlugin } from "./plugin-call.ts";

export const nodeName = "node-a";

/** A pod as the API has it and its sandbox as a runtime made it. */
export interface TestPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly place: Place;
}

/**
 * A node of a real API server: PodNetworks `default` (10.1, brings a default route) and `blue` (10.10), NADs `app/n` (10.50) and
 * `infra/n` (10.60), namespaces `app` (label team=a), `infra`, `kube-system`; podnetd with the rights of conf/rbac.
 */
export class Cluster implements AsyncDisposable {
  readonly lab: Lab;
  readonly place: Place;
  readonly addresses: string;
  readonly #api: ApiServer;
  #daemon: Daemon | undefined;

  private constructor(lab: Lab, place: Place, api: ApiServer) {
    this.lab = lab;
    this.place = place;
    this.addresses = lab.folder();
    this.#api = api;
  }

  static async start(): Promise<Cluster> {
    const lab = new Lab();
    try {
      const place = lab.node();
      const api = await ApiServer.start(lab, place);
      const cluster = new Cluster(lab, place, api);
      try {
        cluster.#fill();
        return cluster;
      } catch (error) {
        await api[Symbol.asyncDispose]();
        throw error;
      }
    } catch (error) {
      lab[Symbol.dispose]();
      throw error;
    }
  }

  get api(): ApiServer {
    return this.#api;
  }

  get daemon(): Daemon {
    if (this.#daemon === undefined) throw new Error("podnetd was not started");
    return this.#daemon;
  }

  /** Starts podnetd with this kubeconfig and further keys of its configuration. `binDirs`: folders of delegates' executables. */
  async startDaemon(
    kubeconfig: string,
    config: object = {},
    binDirs?: readonly string[],
  ): Promise<Daemon> {
    const all = { kubeconfig, nodeName, nadPaths: [this.addresses], ...config };
    const bins = binDirs === undefined ? {} : { binDirs };
    const options = { lab: this.lab, node: this.place, config: all, logLevel: "debug", ...bins };
    this.#daemon = await Daemon.start(options);
    return this.#daemon;
  }

  /** A plugin configuration whose addresses lie in the test's folder. */
  bridge(name: string, subnet: string, extra: object = {}): object {
    const ipam = { type: "host-local", dataDir: this.addresses, ranges: [[{ subnet }]] };
    return { type: "bridge", bridge: `br-${name}`, ipam, ...extra };
  }

  podNetwork(name: string, parameters: object, annotations: object = {}): object {
    const metadata = { name, annotations };
    return {
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetwork",
      metadata,
      spec: { parameters },
    };
  }

  /** `path`: NAMESPACE/NAME. */
  nad(path: string, config: object): object {
    const [namespace, name] = path.split("/");
    return {
      apiVersion: "k8s.cni.cncf.io/v1",
      kind: "NetworkAttachmentDefinition",
      metadata: { namespace, name },
      spec: { config: JSON.stringify({ cniVersion: "1.0.0", ...config }) },
    };
  }

  /** Creates a pod on this node. */
  pod(name: string, annotations: object = {}, namespace = "app"): TestPod {
    this.#api.apply({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { namespace, name, annotations },
      spec: { nodeName, containers: [{ name: "c", image: "none" }], tolerations: [] },
    });
    const { uid } = this.#api.get("pod", "-n", namespace, name).metadata;
    return { namespace, name, uid, place: this.lab.pod() };
  }

  /** One CNI call for a pod, as a runtime that does not pass annotations makes it. */
  async run(
    verb: string,
    pod: TestPod,
    more: { uid?: string; config?: object } = {},
  ): Promise<PluginAnswer> {
    const { namespace, name } = pod;
    const uid = more.uid ?? pod.uid;
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name};K8S_POD_UID=${uid}`;
    const call = {
      verb,
      containerId: `c-${namespace}-${name}`,
      netns: pod.place.path,
      ifName: "eth0",
      args: `${args};K8S_POD_INFRA_CONTAINER_ID=c-${namespace}-${name}`,
      ...(more.config === undefined ? {} : { config: more.config }),
    };
    return await runPlugin(this.daemon.call(call));
  }

  // biome-ignore lint/suspicious/noExplicitAny: results are looked into
  async must(verb: string, pod: TestPod): Promise<any> {
    const answer = await this.run(verb, pod);
    if (answer.status === 0) return answer.json;
    throw new Error(
      `${verb} ${pod.name}: ${answer.stdout}${answer.stderr}\n${this.daemon.log.slice(-3000)}`,
    );
  }

  /** The pod's status annotation of that key once it is there. */
  // biome-ignore lint/suspicious/noExplicitAny: rows are looked into
  async status(pod: TestPod, key = "podnet.dev/network-status"): Promise<any> {
    return await this.eventually(() => {
      const { annotations } = this.#api.get("pod", "-n", pod.namespace, pod.name).metadata;
      return annotations?.[key] === undefined ? undefined : JSON.parse(annotations[key]);
    }, `${key} of ${pod.name}`);
  }

  /** Events on the pod, as `reason: message`. */
  events(pod: TestPod): string[] {
    const list = this.#api.get("events", "-n", pod.namespace);
    return list.items
      .filter((event: { involvedObject: { uid: string } }) => event.involvedObject.uid === pod.uid)
      .map((event: { reason: string; message: string }) => `${event.reason}: ${event.message}`);
  }

  /** Asks until there is an answer; throws after 30 s. */
  async eventually<T>(ask: () => T | undefined | Promise<T | undefined>, what: string): Promise<T> {
    const until = Date.now() + 30_000;
    for (;;) {
      const answer = await ask();
      if (answer !== undefined) return answer;
      if (Date.now() > until)
        throw new Error(`not within 30 s: ${what}\n${this.daemon.log.slice(-4000)}`);
      await sleep(200);
    }
  }

  #fill(): void {
    const files = [...globSync("conf/crds/legacy/*s.yaml"), "conf/rbac/node.yaml"];
    const objects = files.flatMap((file) =>
      parseAllDocuments(readFileSync(file, "utf8")).map((document) => document.toJS() as object),
    );
    this.#api.apply(...objects);
    const crds = ["podnetworks.podnet.dev", "podnetworkattachments.podnet.dev"];
    for (const name of [...crds, "network-attachment-definitions.k8s.cni.cncf.io"])
      this.#api.must("wait", "--for=condition=Established", "--timeout=30s", `crd/${name}`);
    const namespace = (name: string, labels: object, annotations: object = {}) => ({
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name, labels, annotations },
    });
    this.#api.apply(
      namespace("app", { team: "a" }),
      namespace("infra", {}),
      namespace("tenant", {}, { "podnet.dev/default-network": "blue" }),
    );
    this.#api.apply(
      this.podNetwork("default", this.bridge("default", "10.1.0.0/16", { isDefaultGateway: true })),
      this.podNetwork("blue", this.bridge("blue", "10.10.0.0/16")),
      this.nad("app/n", this.bridge("app", "10.50.0.0/16")),
      this.nad("infra/n", this.bridge("infra", "10.60.0.0/16")),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#daemon?.[Symbol.asyncDispose]();
    await this.#api[Symbol.asyncDispose]();
    this.lab[Symbol.dispose]();
  }
}
