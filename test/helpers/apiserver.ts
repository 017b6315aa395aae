import { spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Lab, Place } from "./lab.ts";
import { part } from "./parts.ts";
import { RunningProgram } from "./process.ts";

const startSeconds = 120;

export interface KubectlAnswer {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Tokens of the API server: an administrator's, that of podnetd on a node, and those of a cluster's own programs. */
export const tokens = {
  admin: "admin-token",
  podnet: "podnet-token",
  controller: "controller-token",
  uninstall: "uninstall-token",
  kubelet: "kubelet-token",
  scheduler: "scheduler-token",
} as const;

export interface ApiServerOptions {
  /** Where it listens; default 127.0.0.1:6443. */
  readonly address?: string;
  readonly port?: number;
  /** Name of the node whose kubelet has the token `kubelet`. */
  readonly nodeName?: string;
  /** In place of those that a server without a cluster around it needs. */
  readonly flags?: readonly string[];
}

/** No pod here gets a token of its own: nobody would make it. */
const aloneFlags: readonly string[] = [
  "--authorization-mode=RBAC",
  "--disable-admission-plugins=ServiceAccount",
];

/**
 * A real etcd and a real kube-apiserver (1.20) in a test's namespace, on its loopback if nothing else is said:
 * `https://127.0.0.1:6443`, its certificate made by itself at start, users by token. Nothing outside of the namespace is reachable,
 * or touched.
 */
export class ApiServer implements AsyncDisposable {
  readonly node: Place;
  readonly folder: string;
  readonly server: string;
  readonly #options: Required<ApiServerOptions>;
  readonly #bin: string;
  readonly #programs: RunningProgram[] = [];

  private constructor(lab: Lab, node: Place, options: ApiServerOptions) {
    const { address = "127.0.0.1", port = 6443, nodeName = "node-a" } = options;
    this.#options = { address, port, nodeName, flags: options.flags ?? aloneFlags };
    this.server = `https://${address}:${port}`;
    this.node = node;
    this.folder = lab.folder();
    this.#bin = part("kubernetes", "kube-apiserver", "etcd", "kubectl");
  }

  static async start(lab: Lab, node: Place, options: ApiServerOptions = {}): Promise<ApiServer> {
    const self = new ApiServer(lab, node, options);
    try {
      self.#prepare();
      await self.#startEtcd();
      await self.startApi();
      return self;
    } catch (error) {
      await self[Symbol.asyncDispose]();
      throw error;
    }
  }

  get log(): string {
    return this.#programs.map(({ output }) => output).join("\n");
  }

  get etcd(): string {
    return "http://127.0.0.1:2379";
  }

  /** Starts the API server again after `stopApi`. */
  async startApi(): Promise<void> {
    const file = (name: string) => join(this.folder, name);
    const api = new RunningProgram("kube-apiserver", this.node, [
      join(this.#bin, "kube-apiserver"),
      `--etcd-servers=${this.etcd}`,
      `--bind-address=${this.#options.address === "127.0.0.1" ? "127.0.0.1" : "0.0.0.0"}`,
      `--advertise-address=${this.#options.address}`,
      `--secure-port=${this.#options.port}`,
      "--insecure-port=0",
      `--cert-dir=${file("api")}`,
      `--token-auth-file=${file("tokens.csv")}`,
      "--anonymous-auth=false",
      "--service-account-issuer=https://podnet.test",
      `--service-account-key-file=${file("sa.pub")}`,
      `--service-account-signing-key-file=${file("sa.key")}`,
      "--service-cluster-ip-range=10.96.0.0/16",
      "--endpoint-reconciler-type=none",
      "--watch-cache=true",
      ...this.#options.flags,
    ]);
    this.#programs.push(api);
    const until = Date.now() + startSeconds * 1000;
    while (this.kubectl("get", "--raw", "/readyz").stdout !== "ok") {
      api.mustRun();
      if (Date.now() > until) throw new Error(`no API server:\n${api.output.slice(-4000)}`);
      await sleep(100);
    }
  }

  async stopApi(): Promise<void> {
    await this.#programs.pop()?.stop(5);
  }

  /** A kubeconfig for one of the tokens; `server` in place of the API server itself. */
  kubeconfig(user: keyof typeof tokens, server = this.server): string {
    const tls = server.startsWith("https:")
      ? { "certificate-authority": join(this.folder, "api", "apiserver.crt") }
      : {};
    return this.writeKubeconfig(`${user}-${server.replaceAll(/\W+/g, "-")}`, {
      cluster: { server, ...tls },
      user: { token: tokens[user] },
    });
  }

  writeKubeconfig(name: string, { cluster, user }: { cluster: object; user: object }): string {
    const path = join(this.folder, `${name}.kubeconfig`);
    const config = {
      apiVersion: "v1",
      kind: "Config",
      "current-context": "test",
      contexts: [{ name: "test", context: { cluster: "test", user: "test" } }],
      clusters: [{ name: "test", cluster }],
      users: [{ name: "test", user }],
    };
    writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
    return path;
  }

  /** Runs kubectl as the administrator. */
  kubectl(...args: string[]): KubectlAnswer {
    return this.kubectlInput("", ...args);
  }

  kubectlInput(input: string, ...args: string[]): KubectlAnswer {
    const kubectl = [join(this.#bin, "kubectl"), `--kubeconfig=${this.kubeconfig("admin")}`];
    const home = [`--cache-dir=${join(this.folder, "kubectl")}`, "--request-timeout=20s"];
    const [program = "", ...rest] = this.node.wrap([...kubectl, ...home, ...args]);
    const done = spawnSync(program, rest, { input, encoding: "utf8", maxBuffer: 1 << 26 });
    return { status: done.status ?? -1, stdout: done.stdout, stderr: done.stderr };
  }

  /** As `kubectl`; throws when it fails. */
  must(...args: string[]): string {
    return checked(args, this.kubectl(...args));
  }

  /** kubectl apply of objects. */
  apply(...objects: readonly object[]): void {
    const list = { apiVersion: "v1", kind: "List", items: objects };
    checked(["apply"], this.kubectlInput(JSON.stringify(list), "apply", "-f", "-"));
  }

  // biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
  get(...args: string[]): any {
    return JSON.parse(this.must("get", "-o", "json", ...args));
  }

  #prepare(): void {
    mkdirSync(join(this.folder, "api"));
    const key = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const pem = { format: "pem" } as const;
    writeFileSync(join(this.folder, "sa.key"), key.privateKey.export({ ...pem, type: "pkcs1" }));
    writeFileSync(join(this.folder, "sa.pub"), key.publicKey.export({ ...pem, type: "spki" }));
    const { nodeName } = this.#options;
    const users = [
      `${tokens.admin},admin,uid-admin,"system:masters"`,
      `${tokens.kubelet},system:node:${nodeName},uid-kubelet,"system:nodes"`,
      `${tokens.scheduler},system:kube-scheduler,uid-scheduler`,
      `${tokens.podnet},system:serviceaccount:podnet-system:podnetd,uid-podnet,"system:serviceaccounts"`,
      `${tokens.uninstall},system:serviceaccount:podnet-system:podnet-uninstall,uid-uninstall,"system:serviceaccounts"`,
      `${tokens.controller},system:serviceaccount:podnet-system:podnet-controller,uid-controller,"system:serviceaccounts"`,
    ];
    writeFileSync(join(this.folder, "tokens.csv"), `${users.join("\n")}\n`);
  }

  async #startEtcd(): Promise<void> {
    const etcd = new RunningProgram("etcd", this.node, [
      join(this.#bin, "etcd"),
      `--data-dir=${join(this.folder, "etcd")}`,
      `--listen-client-urls=${this.etcd}`,
      `--advertise-client-urls=${this.etcd}`,
      "--listen-peer-urls=http://127.0.0.1:2380",
      "--unsafe-no-fsync",
    ]);
    this.#programs.push(etcd);
    const until = Date.now() + startSeconds * 1000;
    while (
      !etcd.output.includes("serving insecure client requests") &&
      !etcd.output.includes("ready to serve client requests")
    ) {
      etcd.mustRun();
      if (Date.now() > until) throw new Error(`no etcd:\n${etcd.output.slice(-4000)}`);
      await sleep(50);
    }
  }

  /** The API server first: without etcd it would linger for a minute. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.#programs.splice(0).reverse()) await program.stop(5);
  }
}

function checked(args: readonly string[], { status, stdout, stderr }: KubectlAnswer): string {
  if (status === 0) return stdout;
  throw new Error(`kubectl ${args.join(" ")}: exit ${status}: ${stderr.trim() || stdout.trim()}`);
}
