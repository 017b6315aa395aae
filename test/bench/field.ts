import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { Daemon, podNetwork } from "../helpers/daemon.ts";
import type { Lab, Place } from "../helpers/lab.ts";
import { part } from "../helpers/parts.ts";
import { openFiles } from "../helpers/state.ts";
import { compile, Starter } from "./starter.ts";

export type Verb = "ADD" | "DEL";

/** One side of the comparison: how a pod's networks are attached and detached there. */
export interface Side {
  readonly name: "podnet" | "reference";
  readonly starter: Starter;
  /** The jobs, in order, that do the verb for the first `count` networks of a pod. */
  jobs(verb: Verb, pod: Place, count: number): readonly string[];
}

export const networkCount = 5;

function network(index: number, stores: string): object {
  const subnet = `10.${100 + index}.0.0/16`;
  return {
    type: "bridge",
    bridge: `br${index}`,
    ipam: { type: "host-local", dataDir: stores, ranges: [[{ subnet }]] },
  };
}

/** Two nodes that are alike, podnet on one and the reference executables on the other. */
export class Field {
  readonly lab: Lab;
  /** The one where podnet is. */
  readonly node: Place;
  readonly podnet: Side;
  readonly reference: Side;
  readonly daemon: Daemon;
  readonly bare: string;
  readonly #pods: Place[] = [];

  private constructor(
    lab: Lab,
    { daemon, node }: { daemon: Daemon; node: Place },
    sides: { podnet: Side; reference: Side; bare: string },
  ) {
    this.lab = lab;
    this.node = node;
    this.daemon = daemon;
    this.podnet = sides.podnet;
    this.reference = sides.reference;
    this.bare = sides.bare;
  }

  static async make(lab: Lab): Promise<Field> {
    const tools = lab.folder();
    const starter = compile("starter.c", tools);
    const bare = compile("bare.c", tools);
    const names = Array.from({ length: networkCount }, (_, index) => `n${index}`);
    const node = lab.node();
    const stores = lab.folder();
    const networks = Object.fromEntries(
      names.map((name, index) => [name, podNetwork(name, network(index, stores))]),
    );
    // The log level is a production one: a line for each attachment is part of the work.
    const daemon = await Daemon.start({ lab, node, networks, logLevel: "info" });
    const podnet = podnetSide(new Starter(node, starter, lab.folder()), daemon, names);
    const other = lab.node();
    const reference = referenceSide(new Starter(other, starter, lab.folder()), names, lab.folder());
    return new Field(lab, { daemon, node }, { podnet, reference, bare });
  }

  /** The same empty pods each time; their number grows as needed. */
  pods(count: number): readonly Place[] {
    while (this.#pods.length < count) this.#pods.push(this.lab.pod());
    return this.#pods.slice(0, count);
  }

  /** Processor time that podnetd and its ended children have used, from the scheduler's own nanoseconds. */
  daemonCpuMs(): number {
    const tasks = `/proc/${this.daemon.pid}/task`;
    const own = readdirSync(tasks).reduce((sum, task) => {
      const [running = "0"] = readFileSync(join(tasks, task, "schedstat"), "utf8").split(" ");
      return sum + Number(running) / 1e6;
    }, 0);
    const fields = readFileSync(`/proc/${this.daemon.pid}/stat`, "utf8")
      .replace(/^.*\) /, "")
      .split(" ");
    const childTicks = Number(fields[13]) + Number(fields[14]);
    return own + childTicks * 10;
  }

  daemonRssMib(): number {
    const line = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${this.daemon.pid}/status`, "utf8"));
    return Number(line?.[1]) / 1024;
  }

  /** Open descriptors, and files below the state directory. */
  daemonFiles(): { fds: number; files: number } {
    const fds = Object.values(openFiles(this.daemon.pid)).reduce((sum, count) => sum + count, 0);
    return { fds, files: readdirSync(this.daemon.stateDir, { recursive: true }).length };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.podnet.starter[Symbol.dispose]();
    this.reference.starter[Symbol.dispose]();
    await this.daemon.stop();
  }
}

function podnetSide(starter: Starter, daemon: Daemon, names: readonly string[]): Side {
  const known = new Map<string, readonly string[]>();
  const stub = resolve("dist/bin/podnet");
  const make = (verb: Verb, pod: Place, count: number) => {
    const config = {
      cniVersion: "1.0.0",
      name: "podnet",
      type: "podnet",
      daemonSocket: daemon.socket,
      networks: names.slice(0, count),
    };
    const env = {
      CNI_COMMAND: verb,
      CNI_CONTAINERID: pod.name,
      CNI_NETNS: pod.path,
      CNI_IFNAME: "eth0",
      CNI_PATH: "/opt/cni/bin",
    };
    return [starter.job({ program: stub, env, config })];
  };
  return { name: "podnet", starter, jobs: cached(known, make) };
}

function referenceSide(starter: Starter, names: readonly string[], folder: string): Side {
  const known = new Map<string, readonly string[]>();
  const plugins = part("reference-plugins");
  const stores = join(folder, "stores");
  mkdirSync(stores);
  const make = (verb: Verb, pod: Place, count: number) => {
    const jobs = names.slice(0, count).map((name, index) =>
      starter.job({
        program: join(plugins, "bridge"),
        config: { cniVersion: "1.0.0", name, ...network(index, stores) },
        env: {
          CNI_COMMAND: verb,
          CNI_CONTAINERID: pod.name,
          CNI_NETNS: pod.path,
          CNI_IFNAME: index === 0 ? "eth0" : `net${index}`,
          CNI_PATH: plugins,
        },
      }),
    );
    return verb === "ADD" ? jobs : jobs.toReversed();
  };
  return { name: "reference", starter, jobs: cached(known, make) };
}

/** Each job is written down once, so that a round measures nothing of that. */
function cached(known: Map<string, readonly string[]>, make: Side["jobs"]): Side["jobs"] {
  return (verb, pod, count) => {
    const key = `${verb} ${pod.name} ${count}`;
    const jobs = known.get(key) ?? make(verb, pod, count);
    known.set(key, jobs);
    return jobs;
  };
}
