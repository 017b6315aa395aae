import { globSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseAllDocuments, stringify } from "yaml";
import type { RunningProgram } from "./process.ts";
import type { WholeCluster } from "./whole-cluster.ts";

/** podnetd as a plain process beside the kubelet, with the rights of its service account. */
export class PodnetProcess {
  readonly #cluster: WholeCluster;
  #running: RunningProgram | undefined;

  constructor(cluster: WholeCluster) {
    this.#cluster = cluster;
  }

  get log(): string {
    return this.#running?.output ?? "";
  }

  async install(): Promise<void> {
    const { api, node, nodeName } = this.#cluster;
    const files = [...globSync("conf/crds/legacy/*s.yaml"), "conf/rbac/node.yaml"];
    const objects = files.flatMap((file) =>
      parseAllDocuments(readFileSync(file, "utf8")).map((document) => document.toJS() as object),
    );
    api.apply(...objects);
    const config = { kubeconfig: "/etc/podnet/kubeconfig", nodeName, nadTypes: ["*"] };
    node.write("/etc/podnet/podnetd.yaml", stringify(config));
    node.write("/etc/podnet/kubeconfig", readFileSync(api.kubeconfig("podnet")));
    api.apply({
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetwork",
      metadata: { name: "default" },
      spec: { provider: "podnet.dev/conflist" },
    });
    await this.start();
    node.run("cp", resolve("dist/bin/podnet"), "/opt/cni/bin/podnet");
    node.write("/etc/cni/net.d/00-podnet.conflist", readFileSync("conf/samples/10-podnet.conflist"));
  }

  async start(): Promise<void> {
    const command = [resolve("dist/bin/podnetd"), "--config", "/etc/podnet/podnetd.yaml"];
    const running = this.#cluster.node.program("podnetd", command);
    this.#running = running;
    await this.#cluster.eventually("podnetd ready", () => {
      running.mustRun();
      return running.output.includes("ready") ? true : undefined;
    });
  }

  async stop(): Promise<void> {
    await this.#running?.stop(20);
  }

  podnetctl(...args: string[]): string {
    return this.#cluster.node.run(resolve("dist/bin/podnetctl"), ...args);
  }
}
