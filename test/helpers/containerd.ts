import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Client,
  credentials,
  loadPackageDefinition,
  type ServiceClientConstructor,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { Lab } from "./lab.ts";
import { type MountedNode, removeCgroup } from "./mounts.ts";
import { part } from "./parts.ts";

// biome-ignore lint/suspicious/noExplicitAny: answers have the shape that api.proto gives them
type Message = any;

export interface SandboxOptions {
  readonly name: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly portMappings?: readonly {
    readonly hostPort: number;
    readonly containerPort: number;
    readonly protocol?: "TCP" | "UDP";
  }[];
}

const image = "localhost/box:test";

/** Debian releases with a containerd of their own: 1.6 and 1.7. */
export type ContainerdSuite = "bookworm" | "trixie";

/** containerd with runc, as Debian has them, in a node; spoken to through the container runtime interface, as kubelet does. */
export class Containerd {
  readonly node: MountedNode;
  readonly #folder: string;
  readonly #cgroup: string;
  readonly #programs: string;
  #child: ChildProcess | undefined;
  #log = "";
  #client: Client | undefined;
  readonly #sandboxes = new Map<string, object>();

  private constructor(lab: Lab, node: MountedNode, suite: ContainerdSuite) {
    this.node = node;
    this.#folder = lab.folder();
    this.#cgroup = this.node.name;
    this.#programs = part("containerd", suite);
  }

  /** The node's CNI configuration must be in /etc/cni/net.d before pods are run; containerd watches the folder. */
  static async start(
    lab: Lab,
    node: MountedNode,
    suite: ContainerdSuite = "bookworm",
  ): Promise<Containerd> {
    const self = new Containerd(lab, node, suite);
    try {
      await self.#start();
      return self;
    } catch (error) {
      await self[Symbol.asyncDispose]();
      throw error;
    }
  }

  get log(): string {
    return this.#log;
  }

  /** Writes a file inside the node (CNI configuration, a plugin's link). */
  write(path: string, content: string): void {
    const file = join(this.#folder, "copied");
    writeFileSync(file, content);
    this.node.run("cp", file, path);
  }

  /** Runs ctr. */
  ctr(...args: string[]): string {
    return this.node.run(
      "env",
      `PATH=${this.#path()}`,
      "ctr",
      "--address",
      this.#socket(),
      ...args,
    );
  }

  get image(): string {
    return image;
  }

  /** One call of the RuntimeService. */
  cri(method: string, request: object): Promise<Message> {
    const client = this.#client as unknown as Record<string, (...args: unknown[]) => void>;
    return new Promise((done, failed) => {
      const answer = (error: Error | null, message: Message) =>
        error === null ? done(message) : failed(error);
      client[method]?.call(client, request, { deadline: Date.now() + 60_000 }, answer);
    });
  }

  /** RunPodSandbox as kubelet does it; gives the sandbox' id. */
  async runSandbox(options: SandboxOptions): Promise<string> {
    const uid = `uid-${options.name}`;
    const config = {
      metadata: { name: options.name, uid, namespace: "default", attempt: 0 },
      hostname: options.name,
      log_directory: join(this.#folder, "logs"),
      labels: {
        "io.kubernetes.pod.name": options.name,
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": uid,
      },
      annotations: options.annotations ?? {},
      port_mappings: (options.portMappings ?? []).map((port) => ({
        protocol: port.protocol ?? "TCP",
        container_port: port.containerPort,
        host_port: port.hostPort,
      })),
      linux: { cgroup_parent: `/${this.#cgroup}` },
    };
    const { pod_sandbox_id: id } = await this.cri("RunPodSandbox", { config, runtime_handler: "" });
    this.#sandboxes.set(id, config);
    return id;
  }

  /** PodSandboxStatus: the pod's IPs as kubelet sees them, the CNI result as containerd kept it, and the namespace's path. */
  async status(id: string): Promise<{ ips: string[]; cniResult: Message; netns: string }> {
    const answer = await this.cri("PodSandboxStatus", { pod_sandbox_id: id, verbose: true });
    const info = JSON.parse(answer.info.info);
    const network = answer.status.network ?? { ip: "", additional_ips: [] };
    const spaces = info.runtimeSpec.linux.namespaces as { type: string; path?: string }[];
    return {
      ips: [network.ip, ...network.additional_ips.map((one: { ip: string }) => one.ip)].filter(
        (ip: string) => ip !== "",
      ),
      cniResult: info.cniResult,
      netns: spaces.find((space) => space.type === "network")?.path ?? "",
    };
  }

  /** Starts a container of the busybox image in the sandbox. */
  async runContainer(sandbox: string, command: readonly string[]): Promise<string> {
    const config = {
      metadata: { name: "box", attempt: 0 },
      image: { image },
      command,
      log_path: "box.log",
      linux: {},
    };
    const request = {
      pod_sandbox_id: sandbox,
      config,
      sandbox_config: this.#sandboxes.get(sandbox),
    };
    const { container_id: id } = await this.cri("CreateContainer", request);
    await this.cri("StartContainer", { container_id: id });
    return id;
  }

  /** Runs a command in the container; throws with what it printed when it fails. */
  async exec(container: string, ...cmd: string[]): Promise<string> {
    const done = await this.cri("ExecSync", { container_id: container, cmd, timeout: 20 });
    if (done.exit_code !== 0)
      throw new Error(`${cmd.join(" ")}: exit ${done.exit_code}: ${done.stdout}${done.stderr}`);
    return String(done.stdout);
  }

  /** StopPodSandbox and RemovePodSandbox. */
  async removeSandbox(id: string): Promise<void> {
    await this.cri("StopPodSandbox", { pod_sandbox_id: id });
    await this.cri("RemovePodSandbox", { pod_sandbox_id: id });
    this.#sandboxes.delete(id);
  }

  #socket(): string {
    return join(this.#folder, "containerd.sock");
  }

  #path(): string {
    return `${this.#programs}/usr/bin:${this.#programs}/usr/sbin:${process.env["PATH"]}`;
  }

  async #start(): Promise<void> {
    const file = join(this.#folder, "config.toml");
    writeFileSync(file, config(this.#folder, this.#programs));
    const command = this.node.wrap([join(this.#programs, "usr/bin/containerd"), "--config", file]);
    const [program = "", ...args] = command;
    const child = spawn(program, args, {
      env: { ...process.env, PATH: this.#path() },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    const keep = (text: string) => {
      this.#log += text;
    };
    child.stdout.setEncoding("utf8").on("data", keep);
    child.stderr.setEncoding("utf8").on("data", keep);
    const until = Date.now() + 30_000;
    while (!existsSync(this.#socket())) {
      if (child.exitCode !== null || Date.now() > until)
        throw new Error(`containerd did not start:\n${this.#log.slice(-4000)}`);
      await sleep(20);
    }
    const proto = loadSync(part("cri-proto"), {
      keepCase: true,
      longs: String,
      enums: String,
      defaults: true,
      oneofs: true,
    });
    const api = loadPackageDefinition(proto) as unknown as {
      runtime: { v1: { RuntimeService: ServiceClientConstructor } };
    };
    this.#client = new api.runtime.v1.RuntimeService(
      `unix:${this.#socket()}`,
      credentials.createInsecure(),
      {
        "grpc.default_authority": "localhost",
        "grpc.enable_http_proxy": 0,
      },
    );
    this.ctr(
      "--namespace",
      "k8s.io",
      "images",
      "import",
      "--no-unpack",
      part("image", image, "/bin/sleep", "86400"),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const id of this.#sandboxes.keys()) await this.removeSandbox(id).catch(() => undefined);
    this.#client?.close();
    const child = this.#child;
    if (child !== undefined && child.exitCode === null) {
      const ended = new Promise((done) => child.once("exit", done));
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 5_000);
      await ended;
      clearTimeout(timer);
    }
    removeCgroup(this.#cgroup);
  }
}

function config(folder: string, programs: string): string {
  return `version = 2
root = "${folder}/root"
state = "${folder}/state"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "${folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "${folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${image}"
  stream_server_address = "127.0.0.1"
  # A machine may lack CAP_SYS_RESOURCE: a negative score would end runc's init.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "${programs}/usr/sbin/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`;
}
