import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { WholeCluster } from "./whole-cluster.ts";
import type { KubeObject } from "./whole-cluster-object.ts";

export const podnetNamespace = "podnet-system";
const image = resolve("dist/podnet-image.tar");

/** podnet as `kubectl apply -k` installs it: the DaemonSet, from the image that `make image` built. */
export class PodnetInstallation {
  readonly #cluster: WholeCluster;

  constructor(cluster: WholeCluster) {
    this.#cluster = cluster;
  }

  /** Installs it and waits until the node has it. */
  async install(): Promise<void> {
    if (!existsSync(image)) throw new Error("dist/podnet-image.tar is missing: make image");
    this.#cluster.runtime.load(image);
    this.apply();
    await this.ready();
  }

  apply(): void {
    const { api } = this.#cluster;
    // Objects of a kind that the first run only makes known need a second.
    const first = api.kubectl("apply", "-k", "conf/kustomize/legacy");
    if (first.status !== 0) throw new Error(`kubectl apply -k: ${first.stderr}`);
    const kinds = ["podnetworks.podnet.dev", "podnetworkattachments.podnet.dev"];
    for (const name of [...kinds, "network-attachment-definitions.k8s.cni.cncf.io"])
      api.must("wait", "--for=condition=Established", "--timeout=30s", `crd/${name}`);
  }

  /** The DaemonSet's pod is ready, and it is the newest one. */
  async ready(seconds = 240): Promise<void> {
    const path = `/apis/apps/v1/namespaces/${podnetNamespace}/daemonsets/podnetd`;
    await this.#cluster.eventually(
      "podnetd ready",
      async () => {
        const { metadata, status } = await this.#cluster.request("GET", path);
        const { observedGeneration, numberReady, updatedNumberScheduled } = status;
        const isNew = observedGeneration === metadata.generation && updatedNumberScheduled === 1;
        const pods = await this.pods();
        return isNew && numberReady === 1 && pods.length === 1 ? true : undefined;
      },
      { seconds, about: () => this.about() },
    );
  }

  async pods(): Promise<KubeObject[]> {
    return await this.#cluster.pods.list(podnetNamespace, "app.kubernetes.io/name=podnetd");
  }

  /** kubectl rollout restart; does not wait. */
  restart(): void {
    this.#cluster.api.must("rollout", "restart", "-n", podnetNamespace, "daemonset/podnetd");
  }

  /** kill -9 of podnetd itself, and waits until the kubelet has started the container again. */
  async kill(): Promise<void> {
    const restarts = async () =>
      (await this.pods())[0]?.status.containerStatuses?.[0]?.restartCount;
    const before = await restarts();
    this.#cluster.node.run("sh", "-c", "kill -9 $(pgrep -f '[l]ib/podnetd.mjs')");
    await this.#cluster.eventually(
      "podnetd started again",
      async () => ((await restarts()) > before ? true : undefined),
      { seconds: 120, about: () => this.about() },
    );
    await this.ready();
  }

  /** The same program under another image name, as a release would bring it; does not wait. */
  upgrade(tag: string): void {
    const { api, runtime } = this.#cluster;
    const name = this.#image();
    const other = `${name.replace(/:[^:/]*$/, "")}:${tag}`;
    runtime.ctr("images", "tag", name, other);
    api.must("set", "image", "-n", podnetNamespace, "daemonset/podnetd", `podnetd=${other}`);
  }

  podnetctl(...args: string[]): string {
    const exec = ["exec", "-n", podnetNamespace, "daemonset/podnetd", "--", "podnetctl"];
    return this.#cluster.api.must(...exec, ...args);
  }

  log(): string {
    const { api } = this.#cluster;
    const all = ["logs", "-n", podnetNamespace, "daemonset/podnetd", "--tail=60"];
    const before = api.kubectl(...all, "--previous");
    return `${before.status === 0 ? `--- podnetd before\n${before.stdout}\n` : ""}--- podnetd\n${api.kubectl(...all).stdout}`;
  }

  /** For a failure's message. */
  about(): string {
    const { api, pods } = this.#cluster;
    const list = api.kubectl("get", "pods", "-A", "-o", "wide").stdout;
    const names = api.kubectl("get", "pods", "-n", podnetNamespace, "-o", "name").stdout;
    const events = names
      .split("\n")
      .filter((name) => name !== "")
      .flatMap((name) => pods.events(`${podnetNamespace}/${name.replace("pod/", "")}`));
    return [list, ...events, this.log(), this.#cluster.logs()].join("\n");
  }

  #image(): string {
    const done = spawnSync("tar", ["-xOf", image, "manifest.json"], { encoding: "utf8" });
    const [{ RepoTags: names }] = JSON.parse(done.stdout) as [{ RepoTags: string[] }];
    return names[0] ?? "";
  }
}
