// node test/bench/main.ts [--short] [--only memory,version,latency,burst,bare,types,kube,controller] [--types NAME,...] [--out FILE]: podnet and the reference executables on the same work, in turn, in one run.
// Prints a table and writes JSON. Compare ratios: absolute times are this machine's, under the load that is quoted.
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { Lab } from "../helpers/lab.ts";
import {
  bareCase,
  burstCase,
  fullEffort,
  type Line,
  latencyCase,
  memoryCase,
  shortEffort,
  versionCase,
} from "./cases.ts";
import { controllerCase } from "./controller.ts";
import { Field } from "./field.ts";
import { kubeCase } from "./kube.ts";
import { typesCase } from "./types.ts";

const { values } = parseArgs({
  options: {
    short: { type: "boolean" },
    only: { type: "string", default: "" },
    types: { type: "string", default: "" },
    out: { type: "string", default: "dist/bench.json" },
  },
});
const effort = values.short === true ? shortEffort : fullEffort;
const started = new Date();
const loadBefore = loadavg();
const lines: Line[] = [];

using lab = new Lab();
await using field = await Field.make(lab);
const types = values.types === "" ? [] : values.types.split(",");
const only = values.only === "" && types.length > 0 ? "types" : values.only;
const steps: [string, () => Promise<Line[]> | Line[]][] = [
  ["memory", () => memoryCase(field, effort)],
  ["version", () => versionCase(field, effort)],
  ["latency", () => latencyCase(field, effort)],
  ["burst", () => burstCase(field, effort)],
  ["bare", () => bareCase(field, lines)],
  ["types", () => typesCase(lab, effort, types)],
  // The first run builds Kubernetes, for minutes: only where it is asked for.
  ["kube", () => kubeCase(effort)],
  ["controller", () => controllerCase(effort)],
];
const usual = steps.map(([name]) => name).filter((name) => !["kube", "controller"].includes(name));
const wanted = new Set(only === "" ? usual : only.split(","));
for (const [name, step] of steps.filter(([one]) => wanted.has(one))) {
  process.stderr.write(`bench: ${name}\n`);
  lines.push(...(await step()));
}
const load = { before: loadBefore, after: loadavg() };
const seconds = Math.round((Date.now() - started.getTime()) / 1000);
mkdirSync(dirname(values.out), { recursive: true });
const report = {
  started: started.toISOString(),
  seconds,
  cpus: cpus().length,
  load,
  effort,
  lines,
};
writeFileSync(values.out, `${JSON.stringify(report, null, 1)}\n`);
process.stdout.write(`${table(lines)}\n`);
const averages = [...load.before.slice(0, 1), ...load.after.slice(0, 1)].map((value) =>
  value.toFixed(1),
);
process.stdout.write(
  `load average ${averages.join(" before, ")} after, ${cpus().length} processors, ${seconds} s; ${values.out}\n`,
);

function table(all: readonly Line[]): string {
  const number = (value: number | undefined) =>
    value === undefined ? "" : value.toFixed(value < 10 ? 2 : 1);
  const rows = all.map((line) => [
    line.what,
    `${number(line.podnet)} ${line.unit}`.trim(),
    line.reference === undefined ? "" : `${number(line.reference)} ${line.unit}`,
    line.ratio === undefined ? "" : line.ratio.toFixed(2),
    line.reach === undefined ? "" : `${line.reach}: ${line.reached === true ? "yes" : "NO"}`,
  ]);
  const all5 = [["what", "podnet", "reference", "ratio", "to reach"], ...rows];
  const widths = [0, 1, 2, 3, 4].map((column) =>
    Math.max(...all5.map((row) => row[column]?.length ?? 0)),
  );
  return all5
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
