import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { part } from "./parts.ts";
import type { RunningProgram } from "./process.ts";
import type { ClusterNode } from "./whole-cluster-node.ts";

export const pauseImage = "localhost/pause:test";
/** What the pods of tests run: busybox, whose `sh` must be told what to do. */
export const boxImage = "localhost/box:test";

const socket = "/run/containerd/containerd.sock";
const kubeconfig = "/etc/kubernetes/kubelet.kubeconfig";

/** containerd as Debian 12 has it, with the paths that it has on a machine, on a test's node. */
export class NodeRuntime {
  readonly #node: ClusterNode;
  readonly #programs: string;
  #running: RunningProgram | undefined;

  constructor(node: ClusterNode) {
    this.#node = node;
    this.#programs = part("containerd", "bookworm");
  }

  get log(): string {
    return this.#running?.output ?? "";
  }

  async start(): Promise<void> {
    this.#node.write("/etc/containerd/config.toml", runtimeConfig(this.#programs));
    const binary = join(this.#programs, "usr/bin/containerd");
    this.#running = this.#node.program("containerd", [binary], { PATH: this.#path() });
    for (const until = Date.now() + 30_000; !this.#node.exists(socket); await sleep(20)) {
      this.#running.mustRun();
      if (Date.now() > until) throw new Error(`no containerd:\n${this.log.slice(-4000)}`);
    }
  }

  async stop(): Promise<void> {
    await this.#running?.stop(5);
  }

  ctr(...args: string[]): string {
    const command = ["ctr", "--address", socket, "--namespace", "k8s.io", ...args];
    return this.#node.run("env", `PATH=${this.#path()}`, ...command);
  }

  /** Imports an archive's images. */
  load(archive: string): void {
    this.ctr("images", "import", archive);
  }

  #path(): string {
    return `${this.#programs}/usr/bin:${this.#programs}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin`;
  }
}

export interface KubeletOptions {
  readonly nodeName: string;
  readonly address: string;
  /** Content of its kubeconfig. */
  readonly kubeconfig: string;
  /** Keys of KubeletConfiguration over the harness' own. */
  readonly config?: Readonly<Record<string, unknown>>;
}

/** A kubelet (1.20) on a test's node. */
export class Kubelet {
  readonly #node: ClusterNode;
  readonly #options: KubeletOptions;
  #running: RunningProgram | undefined;

  constructor(node: ClusterNode, options: KubeletOptions) {
    this.#node = node;
    this.#options = options;
  }

  get log(): string {
    return this.#running?.output ?? "";
  }

  start(): void {
    const node = this.#node;
    const { nodeName, address } = this.#options;
    const configuration = JSON.stringify(kubeletConfig(node, this.#options));
    node.write("/etc/kubernetes/kubelet.yaml", configuration);
    node.write(kubeconfig, this.#options.kubeconfig);
    this.#running = node.program("kubelet", [
      join(part("kubernetes", "kubelet"), "kubelet"),
      "--config=/etc/kubernetes/kubelet.yaml",
      `--kubeconfig=${kubeconfig}`,
      `--hostname-override=${nodeName}`,
      `--node-ip=${address}`,
      "--container-runtime=remote",
      `--container-runtime-endpoint=unix://${socket}`,
      "--root-dir=/var/lib/kubelet",
      "--v=2",
    ]);
  }

  mustRun(): void {
    this.#running?.mustRun();
  }

  async stop(): Promise<void> {
    await this.#running?.stop(5);
  }
}

function kubeletConfig(node: ClusterNode, { address, config }: KubeletOptions): object {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    address,
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: "AlwaysAllow" },
    cgroupDriver: "cgroupfs",
    cgroupRoot: node.cgroup,
    enforceNodeAllocatable: [],
    failSwapOn: false,
    // A test's machine may lack CAP_SYS_RESOURCE.
    oomScoreAdj: 0,
    makeIPTablesUtilChains: false,
    healthzPort: 0,
    readOnlyPort: 0,
    maxPods: 300,
    kubeAPIQPS: 100,
    kubeAPIBurst: 200,
    registryPullQPS: 0,
    eventRecordQPS: 0,
    serializeImagePulls: false,
    // Quick to see what happened, and thrifty with what nobody reads.
    syncFrequency: "10s",
    nodeStatusUpdateFrequency: "2s",
    volumeStatsAggPeriod: "1h",
    imageGCHighThresholdPercent: 100,
    evictionHard: { "memory.available": "10Mi", "nodefs.available": "1%" },
    clusterDNS: ["10.96.0.10"],
    clusterDomain: "cluster.local",
    ...config,
  };
}

function runtimeConfig(programs: string): string {
  return `version = 2
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${pauseImage}"
  stream_server_address = "127.0.0.1"
  # A test's machine may lack CAP_SYS_RESOURCE: a negative score would end runc's init.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "${programs}/usr/sbin/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`;
}
