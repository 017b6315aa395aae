import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Netns } from "../../lib/base/netns.ts";
import { Daemon, podNetwork } from "./daemon.ts";
import { FaultFolder, type PointFault } from "./fault-folder.ts";
import { Lab, type Place } from "./lab.ts";
import { type PluginAnswer, runPlugin } from "./plugin-call.ts";
import { type Row, survey } from "./scenario-state.ts";

/** A pod of a scenario: a sandbox, and the pod whose it is. */
export interface ScenarioPod {
  readonly id: string;
  readonly uid: string;
  readonly place: Place;
}

export interface CallOptions {
  readonly networks?: readonly unknown[];
  readonly config?: object;
  readonly signal?: AbortSignal;
  /** Another build's stub. */
  readonly program?: string;
}

/** A delegate that holds a file for each attachment: what an executable leaves is seen like that. */
const holder = `#!/bin/sh
dir=\${0%/*}/../held
config=$(cat)
before=$(printf %s "$config" | sed -n 's/.*"prevResult":\\(.*\\)}$/\\1/p')
[ -n "$before" ] || before='{"cniVersion":"1.1.0","interfaces":[],"ips":[]}'
held=$dir/$CNI_CONTAINERID-$CNI_IFNAME
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
  ADD) : >"$held"; printf %s "$before" ;;
  DEL) rm -f "$held" ;;
esac
`;

/**
 * A node whose daemon passes fault points (see fault-points.ts), with a network for each type that this kernel can attach. The daemon and its
 * folders are the scenario's own; `await using node = await ScenarioNode.start(networks)`.
 */
export class ScenarioNode implements AsyncDisposable {
  readonly lab: Lab;
  readonly place: Place;
  readonly daemon: Daemon;
  readonly addresses: string;
  readonly slowness: number;
  readonly #faults: FaultFolder;
  readonly #held: string;
  readonly #claims: string;
  readonly #preparePod: (pod: Place) => void;
  #made = 0;

  private constructor(
    parts: Pick<ScenarioNode, "lab" | "place" | "daemon" | "addresses" | "slowness">,
    folders: { readonly faults: FaultFolder; readonly held: string },
    preparePod: (pod: Place) => void,
  ) {
    this.lab = parts.lab;
    this.place = parts.place;
    this.daemon = parts.daemon;
    this.addresses = parts.addresses;
    this.slowness = parts.slowness;
    this.#faults = folders.faults;
    this.#held = folders.held;
    this.#preparePod = preparePod;
    using netns = Netns.open(this.place.path);
    this.#claims = `/run/podnet/devices/${netns.cookie()}`;
  }

  /** `networks` gives parameters by name, from the folder for addresses; `prepare` makes what they stand on. */
  static async start(
    networks: (dataDir: string) => Readonly<Record<string, object>>,
    options: {
      /** The node; without it a namespace of its own. */
      readonly place?: Place;
      readonly prepare?: (node: Place) => void;
      /** Makes in each pod what the kernel keeps for good once it was there. */
      readonly preparePod?: (pod: Place) => void;
      readonly wrap?: (command: readonly string[]) => string[];
      readonly config?: Readonly<Record<string, unknown>>;
      /** How many times slower than usual everything is; default 1. */
      readonly slowness?: number;
    } = {},
  ): Promise<ScenarioNode> {
    const lab = new Lab();
    const { slowness = 1 } = options;
    try {
      const place = options.place ?? lab.node();
      options.prepare?.(place);
      const [addresses, tools, faults] = [lab.folder(), lab.folder(), new FaultFolder(lab)];
      const [bin, held] = [join(tools, "bin"), join(tools, "held")];
      for (const folder of [bin, held]) mkdirSync(folder);
      writeFileSync(join(bin, "holder"), holder, { mode: 0o755 });
      const manifests = Object.entries(networks(addresses)).map(
        ([name, parameters]) => [name, podNetwork(name, parameters)] as const,
      );
      const { wrap = (command: readonly string[]) => [...command] } = options;
      const daemon = await Daemon.start({
        lab,
        node: { ...place, wrap: (command) => place.wrap(wrap(command)) },
        networks: Object.fromEntries(manifests),
        binDirs: [bin],
        config: options.config ?? {},
        startSeconds: 30 * slowness,
        env: faults.env,
      });
      const { preparePod = () => undefined } = options;
      const parts = { lab, place, daemon, addresses, slowness };
      return new ScenarioNode(parts, { faults, held }, preparePod);
    } catch (error) {
      lab[Symbol.dispose]();
      throw error;
    }
  }

  /** Where the executable "holder" is. */
  get binDir(): string {
    return join(this.#held, "..", "bin");
  }

  /** A pod with a namespace of its own; `uid` where it is a further sandbox of a known pod. */
  pod(uid?: string): ScenarioPod {
    this.#made += 1;
    const place = this.lab.pod();
    // What was up once keeps its queue and its own address for good.
    place.run("sh", "-c", "ip link set lo up && ip link set lo down");
    this.#preparePod(place);
    return { id: `scn-box-${this.#made}`, uid: uid ?? `uid-${this.#made}`, place };
  }

  call(verb: string, pod: ScenarioPod, options: CallOptions = {}): Promise<PluginAnswer> {
    const run = this.daemon.call({
      verb,
      containerId: pod.id,
      netns: pod.place.path,
      ifName: "eth0",
      args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=web;K8S_POD_UID=${pod.uid}`,
      ...options,
    });
    // The stub runs where the runtime does.
    return runPlugin({ ...run, node: this.place, seconds: 60 * this.slowness });
  }

  /** As call, and throws unless it succeeded. */
  async must(verb: string, pod: ScenarioPod, options: CallOptions = {}): Promise<unknown> {
    const { status, stdout, stderr, json } = await this.call(verb, pod, options);
    if (status !== 0) throw new Error(`${verb} of ${pod.id}: exit ${status}: ${stdout}${stderr}`);
    return json;
  }

  /** GC that lists the pods that are left. */
  async collect(left: readonly ScenarioPod[], by: ScenarioPod): Promise<void> {
    const valid = left.map(({ id }) => ({ containerID: id, ifname: "eth0" }));
    await this.must("GC", by, { config: { "cni.dev/valid-attachments": valid } });
  }

  /** Points that the running daemon has passed since its start. */
  get passed(): number {
    return this.steps.length;
  }

  /** What the points were, in order. */
  get steps(): readonly string[] {
    return this.#faults.steps;
  }

  /** The daemon will do this at its point of that number, counted from its start. */
  arm(point: number, what: PointFault = "kill"): void {
    this.#faults.arm(point, what);
  }

  disarm(): void {
    this.#faults.disarm();
  }

  /** Starts the daemon after a kill. `armed`: it is killed again at that point, and then started for good. Gives how often it was. */
  async recover(armed?: number): Promise<number> {
    if (armed !== undefined && (await this.relive(armed))) return 0;
    await this.relive();
    return armed === undefined ? 0 : 1;
  }

  /** Ends the daemon (kill -9) and starts it anew, perhaps to die at a point of this life. Resolves when it is ready (true), or dead. */
  relive(point?: number): Promise<boolean> {
    return this.#faults.relive(this.daemon, point);
  }

  /** Starts the daemon again if it is killed before `over`. Resolves when it was, and is up; else never. */
  async revive(over: AbortSignal, killed: () => void): Promise<void> {
    await this.daemon.ended();
    if (over.aborted) return await new Promise(() => undefined);
    killed();
    await this.recover();
  }

  /** What is on the node and in these pods now. */
  survey(...pods: readonly ScenarioPod[]): Row[] {
    const folders = {
      ipam: this.addresses,
      record: join(this.daemon.stateDir, "records"),
      held: this.#held,
      claim: this.#claims,
      "device info": "/var/run/k8s.cni.cncf.io/devinfo/cni",
    };
    const places = pods.map(({ place }) => place);
    const { pid } = this.daemon;
    return [...survey({ node: this.place, pods: places, folders, pid }), ...this.#cgroups()];
  }

  #cgroups(): Row[] {
    const name = createHash("sha256").update(this.daemon.stateDir).digest("hex").slice(0, 12);
    const found = ["/sys/fs/cgroup/memory/podnet", "/sys/fs/cgroup/podnet"]
      .map((folder) => join(folder, name))
      .filter((folder) => existsSync(folder))
      .flatMap((folder) => readdirSync(folder, { withFileTypes: true }));
    const made = found.filter((entry) => entry.isDirectory());
    return made.map(({ name: text }) => ({ kind: "cgroup", text }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disarm();
    await this.daemon[Symbol.asyncDispose]();
    this.lab[Symbol.dispose]();
    if (existsSync(this.#claims)) rmSync(this.#claims, { recursive: true });
  }
}
