import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import { ApiServer } from "./apiserver.ts";
import { DirectApi } from "./direct-api.ts";
import { Lab } from "./lab.ts";
import { RunningProgram } from "./process.ts";

// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
type Loose = any;

const main = join(import.meta.dirname, "../../cmd/podnet-controller/main.ts");

/** A podnet-controller beside a test's API server. */
export class ControllerProcess implements AsyncDisposable {
  readonly #program: RunningProgram;

  /** `server`: in place of the API server itself, as a proxy's. `program`: in place of the source. */
  constructor(
    api: ApiServer,
    flags: readonly string[] = [],
    of: { readonly server?: string; readonly program?: string } = {},
  ) {
    const kubeconfig = api.kubeconfig("controller", of.server ?? api.server);
    const own = ["--kubeconfig", kubeconfig, "--metrics", "off", "--log-level", "debug"];
    const program = of.program === undefined ? [process.execPath, main] : [of.program];
    this.#program = new RunningProgram("podnet-controller", api.node, [
      ...program,
      ...own,
      ...flags,
    ]);
  }

  get log(): string {
    return this.#program.output;
  }

  get pid(): number | undefined {
    return this.#program.pid;
  }

  async said(text: string): Promise<void> {
    const until = Date.now() + 30_000;
    while (!this.#program.output.includes(text)) {
      this.#program.mustRun();
      if (Date.now() > until) throw new Error(`not said: ${text}\n${this.log.slice(-4000)}`);
      await sleep(20);
    }
  }

  /** As a crash: nothing is given back. */
  async kill(): Promise<void> {
    if (this.pid !== undefined) process.kill(this.pid, "SIGKILL");
    await this.#program.stop(1);
  }

  async stop(): Promise<void> {
    await this.#program.stop(15);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** A real API server with podnet's objects in it, namespaces `app` and `team-b`, and no node. */
export class ControlledApi implements AsyncDisposable {
  readonly lab: Lab;
  readonly server: ApiServer;
  readonly api: DirectApi;

  private constructor(lab: Lab, server: ApiServer, api: DirectApi) {
    this.lab = lab;
    this.server = server;
    this.api = api;
  }

  static async start(): Promise<ControlledApi> {
    const lab = new Lab();
    const server = await ApiServer.start(lab, lab.node());
    const self = new ControlledApi(lab, server, await DirectApi.start(server));
    await self.#fill();
    return self;
  }

  async #fill(): Promise<void> {
    const files = [
      ...globSync("conf/crds/legacy/*s.yaml"),
      "conf/kustomize/controller/rbac.yaml",
      "conf/rbac/node.yaml",
    ];
    const namespaces = ["app", "team-b", "podnet-system"].map((name) => ({
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name },
    }));
    const objects = files.flatMap((file) =>
      parseAllDocuments(readFileSync(file, "utf8")).map((document) => document.toJS() as object),
    );
    this.server.apply(...namespaces, ...objects);
    const crds = ["podnetworks.podnet.dev", "podnetworkattachments.podnet.dev"];
    for (const name of [...crds, "network-attachment-definitions.k8s.cni.cncf.io"])
      this.server.must("wait", "--for=condition=Established", "--timeout=30s", `crd/${name}`);
  }

  async network(name: string, spec: object = {}): Promise<Loose> {
    const inline = { parameters: { type: "bridge", bridge: `br-${name}` } };
    const isForeign = "provider" in spec || "parametersRefs" in spec || "parameters" in spec;
    return await this.api.create({
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetwork",
      metadata: { name },
      spec: isForeign ? spec : { ...inline, ...spec },
    });
  }

  async attachment(at: string, network: string, refs: readonly object[] = []): Promise<Loose> {
    const [namespace, name] = at.split("/");
    return await this.api.create({
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetworkAttachment",
      metadata: { namespace, name },
      spec: { podNetworkName: network, parametersRefs: refs },
    });
  }

  async nad(at: string, config: object): Promise<Loose> {
    const [namespace, name] = at.split("/");
    return await this.api.create({
      apiVersion: "k8s.cni.cncf.io/v1",
      kind: "NetworkAttachmentDefinition",
      metadata: { namespace, name },
      spec: { config: JSON.stringify({ cniVersion: "1.0.0", ...config }) },
    });
  }

  /** A pod in namespace `app` (or `NAMESPACE/NAME`) that lists networks; with a phase it has a node. */
  async pod(at: string, networks: readonly object[] | undefined, phase?: string): Promise<Loose> {
    const [namespace, name] = at.includes("/") ? at.split("/") : ["app", at];
    const annotations =
      networks === undefined ? {} : { "podnet.dev/networks": JSON.stringify(networks) };
    const pod = await this.api.create({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { namespace, name, annotations },
      spec: {
        containers: [{ name: "c", image: "none" }],
        ...(phase === undefined ? {} : { nodeName: "node-a" }),
      },
    });
    if (phase !== undefined) await this.phase(`${namespace}/${name}`, phase);
    return pod;
  }

  async phase(at: string, phase: string): Promise<void> {
    await this.api.patch(`pods ${at}/status`, { status: { phase } });
  }

  /** `True Ready`, `False ParamsNotReady`; "" when there is no such condition. */
  async condition(at: string, type = "Ready"): Promise<string> {
    const found = await this.conditionObject(at, type);
    return found === undefined ? "" : `${found.status} ${found.reason}`;
  }

  async conditionObject(at: string, type = "Ready"): Promise<Loose> {
    const object = await this.api.find(at);
    return object?.status?.conditions?.find((one: { type: string }) => one.type === type);
  }

  /** Waits until the condition reads so. */
  async until(at: string, wanted: string, type = "Ready"): Promise<void> {
    let seen = "";
    await this.eventually(
      async () => {
        seen = await this.condition(at, type);
        return seen === wanted;
      },
      () => `${at}: ${type} "${wanted}", it is "${seen}"`,
    );
  }

  async untilGone(at: string): Promise<void> {
    await this.eventually(
      async () => (await this.api.find(at)) === undefined,
      () => `${at} gone`,
    );
  }

  /** Asks until it is so; throws after 30 s. */
  async eventually(ask: () => Promise<boolean>, what: () => string): Promise<void> {
    const until = Date.now() + 30_000;
    while (!(await ask())) {
      if (Date.now() > until) throw new Error(`not within 30 s: ${what()}`);
      await sleep(50);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    this.lab[Symbol.dispose]();
  }
}
