import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, nodeName } from "./cluster.ts";
import { Daemon } from "./daemon.ts";
import { DirectApi } from "./direct-api.ts";
import { FaultFolder } from "./fault-folder.ts";
import { KubeProxy } from "./kube-proxy.ts";
import type { Place } from "./lab.ts";
import { type PluginAnswer, runPlugin } from "./plugin-call.ts";

/** A sandbox of a pod that the API server knows. */
export interface PublishedPod {
  readonly name: string;
  readonly uid: string;
  readonly id: string;
  readonly place: Place;
}

const statusKey = "podnet.dev/network-status";
/** The default network, and one with an address that a PodNetworkAttachment holds for one pod alone. */
const selection = JSON.stringify([
  { name: "default" },
  { attachmentName: "single", interfaceName: "data0" },
]);

/**
 * A node of a real API server whose daemon passes fault points. It speaks to the server without TLS, by a proxy: strace so sees its
 * requests, and the test can take the server away.
 */
export class PublishNode implements AsyncDisposable {
  readonly cluster: Cluster;
  readonly proxy: KubeProxy;
  readonly faults: FaultFolder;
  readonly #api: DirectApi;
  readonly #parts: AsyncDisposableStack;
  #daemon: Daemon | undefined;
  #made = 0;

  private constructor(
    parts: Pick<PublishNode, "cluster" | "proxy"> & { readonly api: DirectApi },
    stack: AsyncDisposableStack,
  ) {
    this.cluster = parts.cluster;
    this.proxy = parts.proxy;
    this.#api = parts.api;
    this.#parts = stack;
    this.faults = new FaultFolder(parts.cluster.lab);
  }

  static async start(): Promise<PublishNode> {
    await using stack = new AsyncDisposableStack();
    const cluster = stack.use(await Cluster.start());
    const proxy = stack.use(await KubeProxy.start(cluster.api));
    const api = stack.use(await DirectApi.start(cluster.api));
    const ipam = { type: "static", addresses: [{ address: "10.10.0.5/16" }] };
    cluster.api.apply(cluster.nad("app/fixed", { type: "bridge", bridge: "br-blue", ipam }), {
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetworkAttachment",
      metadata: { namespace: "app", name: "single" },
      spec: {
        podNetworkName: "blue",
        parametersRefs: [
          { group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", name: "fixed" },
        ],
      },
    });
    return new PublishNode({ cluster, proxy, api }, stack.move());
  }

  /** Starts the daemon, with fresh folders. The one before must be at its end. */
  async startDaemon(wrap = (command: readonly string[]) => [...command]): Promise<void> {
    const { lab, place, addresses, api } = this.cluster;
    await this.#daemon?.kill();
    this.#daemon = await Daemon.start({
      lab,
      node: { ...place, wrap: (command) => place.wrap(wrap(command)) },
      config: {
        kubeconfig: api.kubeconfig("podnet", this.proxy.server),
        nodeName,
        nadPaths: [addresses],
      },
      env: this.faults.env,
    });
  }

  get daemon(): Daemon {
    if (this.#daemon === undefined) throw new Error("podnetd was not started");
    return this.#daemon;
  }

  /** A pod of the API server and its first sandbox; of an old name, it replaces the pod that had it. */
  async pod(name = `pod-${this.#made + 1}`): Promise<PublishedPod> {
    await this.#api.delete(`pods app/${name}`);
    const made = await this.#api.create({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { namespace: "app", name, annotations: { "podnet.dev/networks": selection } },
      spec: { nodeName, containers: [{ name: "c", image: "none" }] },
    });
    return this.sandbox({ name, uid: made.metadata.uid });
  }

  /** A further sandbox of a pod. */
  sandbox({ name, uid }: Pick<PublishedPod, "name" | "uid">): PublishedPod {
    this.#made += 1;
    return { name, uid, id: `box-${this.#made}`, place: this.cluster.lab.pod() };
  }

  async remove(pod: PublishedPod): Promise<void> {
    await this.#api.delete(`pods app/${pod.name}`);
    this.cluster.lab.remove(pod.place);
  }

  /** Removes every pod: what a failure left must not fail what follows. */
  async clear(): Promise<void> {
    const { items } = await this.#api.get("pods app/");
    for (const { metadata } of items as { metadata: { name: string } }[])
      await this.#api.delete(`pods app/${metadata.name}`);
  }

  call(verb: string, pod: PublishedPod, signal?: AbortSignal): Promise<PluginAnswer> {
    return runPlugin({
      ...this.daemon.call({
        verb,
        containerId: pod.id,
        netns: pod.place.path,
        ifName: "eth0",
        args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=${pod.name};K8S_POD_UID=${pod.uid}`,
      }),
      node: this.cluster.place,
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /** As a runtime: again and again while the answer is to try again later, as while the API server is away. */
  async must(verb: string, pod: PublishedPod): Promise<void> {
    for (const until = Date.now() + 20_000; ; await sleep(200)) {
      const { status, stdout, stderr, json } = await this.call(verb, pod);
      if (status === 0) return;
      if (json?.code !== 11 || Date.now() > until)
        throw new Error(`${verb} of ${pod.id}: ${stdout}${stderr}`);
    }
  }

  /** Waits until the pod's status is that of this sandbox. */
  async published(pod: PublishedPod): Promise<void> {
    const wanted = JSON.stringify(addressesOf(pod.place));
    let found = "";
    for (const until = Date.now() + 20_000; found !== wanted; await sleep(20)) {
      if (Date.now() > until) throw new Error(`status of ${pod.name} is ${found}, not ${wanted}`);
      found = JSON.stringify(await this.status(pod.name));
    }
  }

  /** Addresses by interface, as the pod's status says; undefined: it has none. */
  async status(name: string): Promise<Readonly<Record<string, string>> | undefined> {
    const text = (await this.#api.get(`pods app/${name}`)).metadata.annotations[statusKey];
    if (text === undefined) return undefined;
    const rows = JSON.parse(text) as { interfaceName: string; ip: string }[];
    return byName(rows.map(({ interfaceName, ip }) => [interfaceName, ip]));
  }

  async version(name: string): Promise<string> {
    return (await this.#api.get(`pods app/${name}`)).metadata.resourceVersion;
  }

  /** The pod that has the fixed address. */
  async holder(): Promise<string | undefined> {
    return (await this.#api.get("podnetworkattachments app/single")).status?.holder?.uid;
  }

  /** How often the API has been told that this pod was attached. */
  async told({ uid }: PublishedPod): Promise<number> {
    const { items } = await this.#api.get("events app/");
    const events = items as { involvedObject: { uid: string }; reason: string }[];
    return events.filter((one) => one.involvedObject.uid === uid && one.reason.startsWith("Att"))
      .length;
  }

  /** Addresses and records that are left on the node. */
  left(): readonly string[] {
    const { addresses } = this.cluster;
    const entries = readdirSync(addresses, { recursive: true, encoding: "utf8" });
    const records = join(this.daemon.stateDir, "records");
    const kept = existsSync(records) ? readdirSync(records) : [];
    return [...entries.filter((path) => /\/\d[\d.]+$/.test(path)), ...kept];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.faults.disarm();
    await this.#daemon?.[Symbol.asyncDispose]();
    await this.#parts.disposeAsync();
  }
}

function addressesOf(place: Place): Readonly<Record<string, string>> {
  const links = JSON.parse(place.run("ip", "-4", "-j", "address")) as {
    ifname: string;
    addr_info: { local: string }[];
  }[];
  const own = links.filter(({ ifname }) => ifname !== "lo");
  return byName(own.map(({ ifname, addr_info: [one] }) => [ifname, one?.local ?? ""]));
}

function byName(rows: readonly (readonly [string, string])[]): Readonly<Record<string, string>> {
  return Object.fromEntries(rows.toSorted(([a], [b]) => a.localeCompare(b)));
}
