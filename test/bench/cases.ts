import { statSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Place } from "../helpers/lab.ts";
import { part } from "../helpers/parts.ts";
import { bareTimes } from "./bare.ts";
import type { Field, Side, Verb } from "./field.ts";
import { median, quantile } from "./numbers.ts";

/** One line of the table. */
export interface Line {
  readonly what: string;
  readonly unit: string;
  readonly podnet: number;
  readonly reference?: number;
  /** podnet / reference, or what `what` says. */
  readonly ratio?: number;
  readonly reach?: string;
  readonly reached?: boolean;
}

export interface Effort {
  readonly rounds: number;
  readonly attached: number;
  readonly burst: number;
  readonly pairs: number;
}

export const fullEffort: Effort = { rounds: 60, attached: 250, burst: 50, pairs: 5_000 };
export const shortEffort: Effort = { rounds: 12, attached: 30, burst: 16, pairs: 1_000 };

export function compared(
  what: string,
  unit: string,
  values: { podnet: number; reference: number; atMost?: number },
): Line {
  const ratio = values.podnet / values.reference;
  const { atMost } = values;
  const reach =
    atMost === undefined ? {} : { reach: `at most ${atMost}`, reached: ratio <= atMost };
  return { what, unit, podnet: values.podnet, reference: values.reference, ratio, ...reach };
}

/** How many times as long something takes beside many pods as on the empty node. The reference's own growth stands beside it. */
function grown(what: string, growth: { podnet: number; reference: number }): Line {
  const ratio = growth.podnet;
  return { what, unit: "x", ...growth, ratio, reach: "at most 1.15", reached: ratio <= 1.15 };
}

/** Something of podnet's beside what else it is to be seen with. */
function beside(what: string, unit: string, both: { podnet: number; reference: number }): Line {
  return { what, unit, ...both, ratio: both.podnet / both.reference };
}

function limited(what: string, unit: string, values: { podnet: number; below: number }): Line {
  return {
    what,
    unit,
    podnet: values.podnet,
    reach: `below ${values.below}`,
    reached: values.podnet < values.below,
  };
}

/** The executables alone: how long a start takes that does nothing. */
export async function versionCase(field: Field, effort: Effort): Promise<Line[]> {
  const env = { CNI_COMMAND: "VERSION" };
  const config = { cniVersion: "1.0.0" };
  const stub = resolve("dist/bin/podnet");
  const reference = join(part("reference-plugins"), "bridge");
  const ours = field.podnet.starter.job({ program: stub, env, config });
  const theirs = field.reference.starter.job({ program: reference, env, config });
  const wall: Record<Side["name"], number[]> = { podnet: [], reference: [] };
  let rss = 0;
  for (let round = 0; round < effort.rounds * 3; round += 1) {
    const one = await field.podnet.starter.run([[ours]]);
    wall.podnet.push(one.wallMs);
    rss = Math.max(rss, one.maxRssKib / 1024);
    wall.reference.push((await field.reference.starter.run([[theirs]])).wallMs);
  }
  return [
    compared("stub VERSION, whole process, p50", "ms", {
      podnet: median(wall.podnet),
      reference: median(wall.reference),
      atMost: 1,
    }),
    limited("stub size", "MB", { podnet: statSync(stub).size / 1e6, below: 2 }),
    limited("stub resident size", "MiB", { podnet: rss, below: 3 }),
  ];
}

interface Samples {
  readonly wall: Record<Side["name"], Record<Verb, number[]>>;
  /** Milliseconds of processor for one ADD. */
  readonly addCpu: Record<Side["name"], number[]>;
}

const counts = [1, 3, 5] as const;
const reach = { ADD: { 1: 0.5, 3: 0.25, 5: 0.2 }, DEL: { 1: 0.25, 3: 0.1, 5: 0.07 } } as const;

/** One ADD and DEL of a pod on one side. */
async function oneRound(field: Field, side: Side, work: { pod: Place; count: number }) {
  const own = side.name === "podnet";
  const before = own ? field.daemonCpuMs() : 0;
  const add = await side.starter.run([side.jobs("ADD", work.pod, work.count)]);
  const daemon = own ? field.daemonCpuMs() - before : 0;
  const del = await side.starter.run([side.jobs("DEL", work.pod, work.count)]);
  return { ADD: add.wallMs, DEL: del.wallMs, cpu: add.cpuMs + daemon };
}

/** The sides in turn, round by round. The first rounds only warm up: a daemon runs for weeks, and its code is compiled as it is used. */
async function alternate(
  field: Field,
  sides: readonly Side[],
  work: { count: number; rounds: number },
): Promise<Samples> {
  const empty = () => ({ ADD: [] as number[], DEL: [] as number[] });
  const samples: Samples = {
    wall: { podnet: empty(), reference: empty() },
    addCpu: { podnet: [], reference: [] },
  };
  const [pod] = field.pods(1);
  if (pod === undefined) throw new Error("no pods");
  const warmUp = 20;
  for (let round = 0; round < warmUp + work.rounds; round += 1) {
    for (const side of sides) {
      const one = await oneRound(field, side, { pod, count: work.count });
      if (round < warmUp) continue;
      samples.wall[side.name].ADD.push(one.ADD);
      samples.wall[side.name].DEL.push(one.DEL);
      samples.addCpu[side.name].push(one.cpu);
    }
  }
  return samples;
}

/** Latency and processor time on a node without other pods, then the same beside many attached ones. */
export async function latencyCase(field: Field, effort: Effort): Promise<Line[]> {
  const lines: Line[] = [];
  const both = [field.podnet, field.reference];
  const emptyNode = new Map<string, Record<Side["name"], number>>();
  for (const count of counts) {
    const { wall, addCpu } = await alternate(field, both, { count, rounds: effort.rounds });
    for (const verb of ["ADD", "DEL"] as const) {
      const [podnet, reference] = [median(wall.podnet[verb]), median(wall.reference[verb])];
      emptyNode.set(`${verb} ${count}`, { podnet, reference });
      lines.push(
        compared(`${verb} of ${count}, p50`, "ms", {
          podnet,
          reference,
          atMost: reach[verb][count],
        }),
      );
      lines.push(
        compared(`${verb} of ${count}, p95`, "ms", {
          podnet: quantile(wall.podnet[verb], 0.95),
          reference: quantile(wall.reference[verb], 0.95),
        }),
      );
    }
    const cpu = { podnet: mean(addCpu.podnet), reference: mean(addCpu.reference) };
    lines.push(
      compared(
        `processor time of an ADD of ${count}, mean`,
        "ms",
        count === 3 ? { ...cpu, atMost: 0.25 } : cpu,
      ),
    );
  }
  const floor = new Map(counts.map((count) => [count, bareTimes(field, field.node, count)]));
  const pods = field.pods(2 * effort.attached + 1).slice(1);
  const crowded = async (verb: Verb) => {
    for (const [place, side] of both.entries()) {
      const own = pods.slice(place * effort.attached, (place + 1) * effort.attached);
      await side.starter.run(
        own.map((pod) => side.jobs(verb, pod, 3)),
        4,
      );
    }
  };
  await crowded("ADD");
  for (const count of counts) {
    const { wall } = await alternate(field, both, { count, rounds: effort.rounds });
    const bare = bareTimes(field, field.node, count);
    for (const verb of ["ADD", "DEL"] as const) {
      const empty = emptyNode.get(`${verb} ${count}`) ?? {
        podnet: Number.NaN,
        reference: Number.NaN,
      };
      const [podnet, reference] = [median(wall.podnet[verb]), median(wall.reference[verb])];
      const what = `${verb} of ${count} beside ${effort.attached} pods`;
      lines.push(
        compared(`${what}, p50`, "ms", { podnet, reference, atMost: reach[verb][count] }),
        grown(`${what}, against the empty node`, {
          podnet: podnet / empty.podnet,
          reference: reference / empty.reference,
        }),
        beside(`${what}, growth beside that of the bare kernel's messages`, "x", {
          podnet: podnet / empty.podnet,
          reference: bare[verb] / (floor.get(count)?.[verb] ?? Number.NaN),
        }),
      );
    }
  }
  await crowded("DEL");
  return lines;
}

/** Many pods at once. */
export async function burstCase(field: Field, effort: Effort): Promise<Line[]> {
  const pods = field.pods(effort.burst);
  const wall: Record<Side["name"], number[]> = { podnet: [], reference: [] };
  for (let round = 0; round < 3; round += 1) {
    for (const side of [field.podnet, field.reference]) {
      wall[side.name].push(
        (
          await side.starter.run(
            pods.map((pod) => side.jobs("ADD", pod, 3)),
            32,
          )
        ).wallMs,
      );
      await side.starter.run(
        pods.map((pod) => side.jobs("DEL", pod, 3)),
        32,
      );
    }
  }
  const values = { podnet: median(wall.podnet), reference: median(wall.reference), atMost: 0.25 };
  return [compared(`${effort.burst} ADDs of 3, 32 at once, all of them`, "ms", values)];
}

/** The daemon's memory and files over many pairs; expects a daemon that has served nothing yet. */
export async function memoryCase(field: Field, effort: Effort): Promise<Line[]> {
  const idle = field.daemonRssMib();
  const [pod] = field.pods(1);
  if (pod === undefined) throw new Error("no pods");
  const pair = [...field.podnet.jobs("ADD", pod, 3), ...field.podnet.jobs("DEL", pod, 3)];
  const pairs = async (count: number) => {
    for (let done = 0; done < count; done += 100)
      await field.podnet.starter.run(Array.from({ length: 100 }, () => pair));
  };
  const early = effort.pairs / 10;
  await pairs(early);
  const [rss, files] = [field.daemonRssMib(), field.daemonFiles()];
  await pairs(effort.pairs - early);
  const [later, filesLater] = [field.daemonRssMib(), field.daemonFiles()];
  return [
    limited("podnetd resident size, idle", "MiB", { podnet: idle, below: 110 }),
    { what: `podnetd resident size after ${early} pairs`, unit: "MiB", podnet: rss },
    { what: `podnetd resident size after ${effort.pairs} pairs`, unit: "MiB", podnet: later },
    limited(`podnetd growth from ${early} to ${effort.pairs} pairs`, "MiB", {
      podnet: later - rss,
      below: 10,
    }),
    limited("podnetd descriptors gained meanwhile", "", {
      podnet: filesLater.fds - files.fds,
      below: 1,
    }),
    limited("files gained below the state directory", "", {
      podnet: filesLater.files - files.files,
      below: 1,
    }),
  ];
}

/** The floor: the same messages from a program that does nothing else, and no process start, no IPAM and no record. */
export function bareCase(field: Field, lines: readonly Line[]): Line[] {
  const node = field.lab.node();
  return counts.flatMap((count) => {
    const floor = bareTimes(field, node, count);
    return (["ADD", "DEL"] as const).map((verb): Line => {
      const podnet =
        lines.find((line) => line.what === `${verb} of ${count}, p50`)?.podnet ?? Number.NaN;
      const what = `${verb} of ${count}, against the bare kernel's messages, p50`;
      return beside(what, "ms", { podnet, reference: floor[verb] });
    });
  });
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
