import { chmodSync, copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { ApiServer } from "./apiserver.ts";
import { Lab, type Place } from "./lab.ts";
import { part } from "./parts.ts";
import { RunningProgram } from "./process.ts";
import {
  boxImage,
  Kubelet,
  type KubeletOptions,
  NodeRuntime,
  pauseImage,
} from "./whole-cluster-kubelet.ts";
import { ClusterNode } from "./whole-cluster-node.ts";
import type { KubeObject } from "./whole-cluster-object.ts";
import { ClusterPods, type PodsCluster } from "./whole-cluster-pods.ts";

/** The wire between the cluster's control plane and its node, and the address that pods know the API server by. */
const control = { address: "10.254.0.1", service: "10.96.0.1" };
const nodeAddress = "10.254.0.2";
const podRange = "10.244.0.0/16";

const controllers =
  "deployment,replicaset,daemonset,job,serviceaccount,serviceaccount-token,root-ca-cert-publisher,namespace,garbagecollector,podgc,nodelifecycle,endpoint";

export interface WholeClusterOptions {
  readonly nodeName?: string;
  /** Keys of KubeletConfiguration. */
  readonly kubelet?: KubeletOptions["config"];
}

/**
 * A whole Kubernetes 1.20 with one node: etcd, API server, controller manager and scheduler in one network namespace; kubelet and
 * containerd on a node with network, mounts and processes of its own. Its default network is the reference bridge plugin,
 * 10.244.0.0/16. Requests of the test go through `kubectl proxy`, without a process each.
 */
export class WholeCluster implements AsyncDisposable, PodsCluster {
  readonly lab: Lab;
  readonly nodeName: string;
  readonly api: ApiServer;
  readonly node: ClusterNode;
  readonly runtime: NodeRuntime;
  readonly kubelet: Kubelet;
  readonly pods: ClusterPods;
  readonly #control: Place;
  readonly #programs: RunningProgram[] = [];
  readonly #agent: Agent;

  private constructor(parts: {
    lab: Lab;
    nodeName: string;
    control: Place;
    api: ApiServer;
    node: ClusterNode;
    runtime: NodeRuntime;
    kubelet: KubeletOptions["config"];
  }) {
    this.lab = parts.lab;
    this.nodeName = parts.nodeName;
    this.#control = parts.control;
    this.api = parts.api;
    this.node = parts.node;
    this.runtime = parts.runtime;
    this.kubelet = new Kubelet(this.node, {
      nodeName: this.nodeName,
      address: nodeAddress,
      kubeconfig: readFileSync(this.api.kubeconfig("kubelet"), "utf8"),
      config: parts.kubelet ?? {},
    });
    this.pods = new ClusterPods(this);
    this.#agent = new Agent({ connect: { socketPath: this.#proxySocket() } });
  }

  /** Resolves when the node is ready for pods. */
  static async start(options: WholeClusterOptions = {}): Promise<WholeCluster> {
    part("kubernetes");
    const { nodeName = "node-a" } = options;
    await using undo = new AsyncDisposableStack();
    const lab = undo.use(new Lab());
    const control = lab.node();
    const node = undo.use(await ClusterNode.start(lab));
    wire(control, node);
    const [api, runtime] = await Promise.all([
      startApi(lab, control, nodeName),
      startRuntime(node),
    ]);
    undo.use(api);
    const parts = { lab, nodeName, control, api, node, runtime, kubelet: options.kubelet };
    const self = undo.use(new WholeCluster(parts));
    self.#startControl();
    self.kubelet.start();
    await self.nodeReady();
    // What the stack holds is the cluster's from here on.
    undo.move();
    return self;
  }

  /** One request to the API as the administrator. Throws with the answer's message unless `accept` takes its status. */
  async request(
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
    path: string,
    body?: unknown,
  ): Promise<KubeObject> {
    const contentType = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const answer = await request(`http://localhost${path}`, {
      method,
      dispatcher: this.#agent,
      headers: { "content-type": contentType },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode < 300) return text.startsWith("{") ? JSON.parse(text) : text;
    throw Object.assign(
      new Error(`${method} ${path}: ${answer.statusCode}: ${text.slice(0, 500)}`),
      {
        status: answer.statusCode,
      },
    );
  }

  /** As `request` with GET; undefined where there is nothing. */
  async get(path: string): Promise<KubeObject | undefined> {
    try {
      return await this.request("GET", path);
    } catch (error) {
      if ((error as { status?: number }).status === 404) return undefined;
      throw error;
    }
  }

  /** Runs a command in a pod's container through API server and kubelet. */
  exec(pod: string, ...command: string[]): string {
    const [namespace = "", name = ""] = pod.split("/");
    return this.api.must("exec", "-n", namespace, name, "--", ...command);
  }

  /** Asks until there is an answer; throws after so many seconds, with what `about` says. */
  async eventually<T>(
    what: string,
    ask: () => T | undefined | Promise<T | undefined>,
    { seconds = 120, about = () => "" }: { seconds?: number; about?: () => string } = {},
  ): Promise<T> {
    let fault = "";
    for (const until = Date.now() + seconds * 1000; Date.now() < until; await sleep(100)) {
      try {
        const answer = await ask();
        if (answer !== undefined) return answer;
      } catch (error) {
        fault = `${error}`;
      }
    }
    throw new Error(`not within ${seconds} s: ${what}\n${fault}\n${about()}`);
  }

  async nodeReady(): Promise<void> {
    await this.eventually(
      "a node that is ready",
      async () => {
        this.kubelet.mustRun();
        const node = await this.get(`/api/v1/nodes/${this.nodeName}`);
        const tainted = (node?.spec.taints ?? []).length > 0;
        return !tainted && readyOf(node) ? true : undefined;
      },
      { seconds: 180, about: () => this.logs() },
    );
  }

  /** All is ended that runs on the node; IPAM files, records and images are kept. */
  async rebootNode(): Promise<void> {
    await this.node.reboot(["uplink"]);
    await this.runtime.start();
    this.kubelet.start();
  }

  /** The ends of the logs, for a failure's message. */
  logs(): string {
    const named = { kubelet: this.kubelet.log, containerd: this.runtime.log };
    const dull = /setters\.go|ImageCreate|ImageUpdate|perf_event/;
    return Object.entries(named)
      .map(([name, text]) => {
        const lines = text.split("\n").filter((line) => !dull.test(line));
        return `--- ${name}\n${lines.slice(-25).join("\n")}`;
      })
      .join("\n");
  }

  #proxySocket(): string {
    return join(this.api.folder, "proxy.sock");
  }

  #startControl(): void {
    const bin = part("kubernetes");
    const file = (name: string) => join(this.api.folder, name);
    const start = (name: string, ...args: string[]) => {
      const command = ["setpriv", "--pdeathsig", "KILL", join(bin, name), ...args];
      this.#programs.push(new RunningProgram(name, this.#control, command));
    };
    const admin = `--kubeconfig=${this.api.kubeconfig("admin")}`;
    start("kubectl", admin, "proxy", `--unix-socket=${this.#proxySocket()}`, "--reject-methods=^$");
    start(
      "kube-controller-manager",
      admin,
      "--leader-elect=false",
      "--port=0",
      "--secure-port=0",
      `--service-account-private-key-file=${file("sa.key")}`,
      `--root-ca-file=${file("api/apiserver.crt")}`,
      `--controllers=${controllers}`,
      "--kube-api-qps=100",
      "--kube-api-burst=200",
    );
    start(
      "kube-scheduler",
      `--kubeconfig=${this.api.kubeconfig("scheduler")}`,
      "--leader-elect=false",
      "--port=0",
      "--secure-port=0",
      "--kube-api-qps=100",
      "--kube-api-burst=200",
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.node[Symbol.asyncDispose]();
    for (const program of this.#programs.splice(0).reverse()) await program.stop(2);
    await this.#agent.destroy();
    await this.api[Symbol.asyncDispose]();
    this.lab[Symbol.dispose]();
  }
}

export function readyOf(object: KubeObject): boolean {
  const conditions: { type: string; status: string }[] = object?.status?.conditions ?? [];
  return conditions.some(({ type, status }) => type === "Ready" && status === "True");
}

function wire(control: Place, node: Place): void {
  const ends = [
    [control, "uplink", "10.254.0.1/30"],
    [node, "uplink", "10.254.0.2/30"],
  ] as const;
  const peer = ["peer", "name", "uplink", "netns", node.name];
  control.run("ip", "link", "add", "uplink", "type", "veth", ...peer);
  for (const [place, device, address] of ends) {
    place.run("ip", "address", "add", address, "dev", device);
    place.run("ip", "link", "set", device, "up");
  }
}

async function startApi(lab: Lab, place: Place, nodeName: string): Promise<ApiServer> {
  place.run("ip", "address", "add", `${control.service}/32`, "dev", "lo");
  place.run("ip", "route", "add", podRange, "via", nodeAddress);
  const flags = [
    "--authorization-mode=Node,RBAC",
    "--kubelet-preferred-address-types=InternalIP",
    "--allow-privileged=true",
    // Services have no addresses here: webhooks are asked at their pods.
    "--enable-aggregator-routing=true",
  ];
  return await ApiServer.start(lab, place, {
    address: control.address,
    port: 443,
    nodeName,
    flags,
  });
}

async function startRuntime(node: ClusterNode): Promise<NodeRuntime> {
  const runtime = new NodeRuntime(node);
  // No default route, no name server: what programs try to reach outside fails at once.
  node.run("ip", "route", "add", `${control.service}/32`, "via", control.address);
  node.write("/etc/resolv.conf", "");
  node.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward");
  const plugins = part("reference-plugins");
  for (const name of ["bridge", "host-local", "portmap", "loopback"]) {
    const copy = node.outside(`/opt/cni/bin/${name}`);
    copyFileSync(join(plugins, name), copy);
    chmodSync(copy, 0o755);
  }
  node.write("/etc/cni/net.d/10-bridge.conflist", JSON.stringify(defaultNetwork()));
  await runtime.start();
  runtime.load(part("image", pauseImage, "/bin/sleep", "infinity"));
  runtime.load(part("image", boxImage, "/bin/sh"));
  return runtime;
}

function defaultNetwork(): object {
  const ipam = {
    type: "host-local",
    ranges: [[{ subnet: podRange }]],
    routes: [{ dst: "0.0.0.0/0" }],
  };
  const bridge = { type: "bridge", bridge: "cni0", isGateway: true, ipMasq: false, ipam };
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  return { cniVersion: "1.0.0", name: "default", plugins: [bridge, portmap] };
}
