import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { Daemon, podNetwork } from "../helpers/daemon.ts";
import type { Lab, Place } from "../helpers/lab.ts";
import { part } from "../helpers/parts.ts";
import { compared, type Effort, type Line } from "./cases.ts";
import type { Verb } from "./field.ts";
import { median } from "./numbers.ts";
import { compile, Starter } from "./starter.ts";

/** One way to attach: a plugin, or a chain of them. */
interface Way {
  readonly name: string;
  readonly plugins: readonly Readonly<Record<string, unknown>>[];
  readonly runtimeConfig?: Readonly<Record<string, unknown>>;
}

const bridge = { type: "bridge", bridge: "br0" };
const mapping = { hostPort: 8080, containerPort: 80, protocol: "tcp" };

/**
 * Each type that this kernel can make. ipvlan, vlan, dummy and vrf exist in the virtual machine only, where JavaScript is 6 to 10 times slower than
 * outside and C is not: a ratio measured there would say nothing. They share macvlan's code but for one netlink message.
 */
const ways: readonly Way[] = [
  { name: "bridge", plugins: [bridge] },
  { name: "macvlan", plugins: [{ type: "macvlan", master: "dev0" }] },
  { name: "ptp", plugins: [{ type: "ptp" }] },
  { name: "tap", plugins: [{ type: "tap" }] },
  { name: "host-device", plugins: [{ type: "host-device", device: "dev1" }] },
  {
    name: "bridge and tuning",
    plugins: [
      bridge,
      { type: "tuning", mtu: 1400, sysctl: { "net.ipv4.conf.IFNAME.arp_notify": "1" } },
    ],
  },
  {
    name: "bridge and portmap",
    plugins: [
      bridge,
      { type: "portmap", backend: "nftables", capabilities: { portMappings: true } },
    ],
    runtimeConfig: { portMappings: [mapping] },
  },
  {
    name: "bridge and bandwidth",
    plugins: [
      bridge,
      {
        type: "bandwidth",
        ingressRate: 1e8,
        ingressBurst: 1e7,
        egressRate: 1e8,
        egressBurst: 1e7,
      },
    ],
  },
  { name: "bridge and sbr", plugins: [bridge, { type: "sbr" }] },
];

const reach = { ADD: 0.5, DEL: 0.3 } as const;
const warmUp = 15;

/** The plugins with addresses in the first one. */
function pluginsOf(way: Way, place: number, stores: string): object[] {
  const ipam = {
    type: "host-local",
    dataDir: stores,
    ranges: [[{ subnet: `10.${50 + place}.0.0/16` }]],
  };
  return way.plugins.map((plugin, at) => (at === 0 ? { ...plugin, ipam } : { ...plugin }));
}

/** An empty node with what the types need: two interfaces whose other ends are elsewhere, as on a switch. */
function makeNode(lab: Lab): Place {
  const node = lab.node();
  const far = lab.pod();
  for (const name of ["dev0", "dev1"]) {
    node.run("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", far.name);
    far.run("ip", "link", "set", name, "up");
    node.run("ip", "link", "set", name, "up");
  }
  return node;
}

type Jobs = (verb: Verb, way: Way) => readonly string[];

interface Contender {
  readonly starter: Starter;
  readonly jobs: Jobs;
}

/** One ADD and DEL of each type, both sides in turn. `only` names some of them. */
export async function typesCase(
  lab: Lab,
  effort: Effort,
  only: readonly string[],
): Promise<Line[]> {
  const chosen = ways.filter(({ name }) => only.length === 0 || only.includes(name));
  if (chosen.length === 0) {
    throw new Error(`no such type: choose of "${ways.map(({ name }) => name).join('", "')}"`);
  }
  const program = compile("starter.c", lab.folder());
  const node = makeNode(lab);
  const stores = lab.folder();
  const networks = Object.fromEntries(
    ways.map((way, place) => [
      `t${place}`,
      podNetwork(`t${place}`, { plugins: pluginsOf(way, place, stores) }),
    ]),
  );
  await using daemon = await Daemon.start({ lab, node, networks, logLevel: "info" });
  using ours = new Starter(node, program, lab.folder());
  using theirs = new Starter(makeNode(lab), program, lab.folder());
  const podnet = { starter: ours, jobs: podnetJobs(ours, daemon, lab.pod()) };
  const reference = { starter: theirs, jobs: referenceJobs(theirs, lab.folder(), lab.pod()) };
  // A daemon runs for weeks: what its types share is compiled before the first of them is measured.
  const [first] = chosen;
  if (first !== undefined) {
    const pair = [...podnet.jobs("ADD", first), ...podnet.jobs("DEL", first)];
    for (let round = 0; round < 10 * warmUp; round += 1) await ours.run([pair]);
  }
  const lines: Line[] = [];
  for (const way of chosen) lines.push(...(await rows(way, effort, { podnet, reference })));
  return lines;
}

async function rows(
  way: Way,
  effort: Effort,
  sides: { readonly podnet: Contender; readonly reference: Contender },
): Promise<Line[]> {
  const both = [sides.podnet, sides.reference].map(({ starter, jobs }) => ({
    starter,
    jobs: { ADD: jobs("ADD", way), DEL: jobs("DEL", way) },
    wall: { ADD: [] as number[], DEL: [] as number[] },
  }));
  for (let round = -warmUp; round < effort.rounds; round += 1) {
    for (const { starter, jobs, wall } of both) {
      for (const verb of ["ADD", "DEL"] as const) {
        const { wallMs } = await starter.run([jobs[verb]]);
        if (round >= 0) wall[verb].push(wallMs);
      }
    }
  }
  return (["ADD", "DEL"] as const).map((verb) => {
    const [podnet = Number.NaN, reference = Number.NaN] = both.map(({ wall }) =>
      median(wall[verb]),
    );
    return compared(`${way.name}: ${verb}, p50`, "ms", { podnet, reference, atMost: reach[verb] });
  });
}

function podnetJobs(starter: Starter, daemon: Daemon, pod: Place): Jobs {
  const stub = resolve("dist/bin/podnet");
  return (verb, way) => {
    const config = {
      cniVersion: "1.0.0",
      name: "podnet",
      type: "podnet",
      daemonSocket: daemon.socket,
      networks: [`t${ways.indexOf(way)}`],
      ...(way.runtimeConfig === undefined ? {} : { runtimeConfig: way.runtimeConfig }),
    };
    return [starter.job({ program: stub, env: environment(verb, pod, "/opt/cni/bin"), config })];
  };
}

/** As a runtime runs a list: each plugin with the result of the one before it, DEL from the last to the first with the final result. */
function referenceJobs(starter: Starter, stores: string, pod: Place): Jobs {
  const path = part("reference-plugins");
  mkdirSync(stores, { recursive: true });
  const answers = new Map<Way, string>();
  return (verb, way) => {
    const place = ways.indexOf(way);
    const plugins = pluginsOf(way, place, stores) as { readonly type: string }[];
    let previous = verb === "DEL" ? answers.get(way) : undefined;
    const ordered = verb === "DEL" ? plugins.toReversed() : plugins;
    return ordered.map((plugin) => {
      const { capabilities: _, ...config } = plugin as Readonly<Record<string, unknown>>;
      const job = starter.job({
        program: join(path, plugin.type),
        env: environment(verb, pod, path),
        config: {
          cniVersion: "1.0.0",
          name: `t${place}`,
          ...config,
          ...(plugin.type === "portmap" && { runtimeConfig: way.runtimeConfig }),
          ...(previous !== undefined && { prevResult: `@${previous}@` }),
        },
      });
      if (verb === "ADD") {
        previous = `${job}.out`;
        answers.set(way, previous);
      }
      return job;
    });
  };
}

function environment(verb: Verb, pod: Place, path: string): Record<string, string> {
  return {
    CNI_COMMAND: verb,
    CNI_CONTAINERID: pod.name,
    CNI_NETNS: pod.path,
    CNI_IFNAME: "eth0",
    CNI_PATH: path,
    // The reference's tap starts `ip`.
    PATH: process.env["PATH"] ?? "",
  };
}
