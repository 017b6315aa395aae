// Writes what the tests of this folder counted (FAULTS_REPORT=<file>) into docs/faults.md: node test/faults/report.ts <file>...
import { readFileSync, writeFileSync } from "node:fs";

const page = "docs/faults.md";
const [begin, end] = ["<!-- measured: begin -->", "<!-- measured: end -->"];

/** Adds figures of the same name up, and takes the largest of those named `... max`. */
function sum(lines: readonly string[]): Map<string, number> {
  const figures = new Map<string, number>();
  for (const line of lines) {
    for (const [name, value] of Object.entries(JSON.parse(line) as Record<string, number>)) {
      const before = figures.get(name) ?? 0;
      figures.set(name, name.endsWith(" max") ? Math.max(before, value) : before + value);
    }
  }
  return figures;
}

const lines = process.argv
  .slice(2)
  .flatMap((file) => readFileSync(file, "utf8").split("\n"))
  .filter((line) => line !== "");
const figures = new Map(
  [...sum(lines)].map(([name, value]) => [name.replace(/ max$/, ""), value.toLocaleString("en")]),
);
const [head = "", rest = ""] = readFileSync(page, "utf8").split(begin);
const [old = "", tail = ""] = rest.split(end);
// What was not measured now stays as it was measured before.
const before = [...old.matchAll(/^\| (.+) \| ([\d,]+) \|$/gm)].map(
  ([, name = "", value = ""]) => [name, value] as const,
);
const rows = [...new Map([...before, ...figures])].map(([name, value]) => `| ${name} | ${value} |`);
const table = ["| figure | value |", "| --- | --- |", ...rows].join("\n");
writeFileSync(page, `${head}${begin}\n${table}\n${end}${tail}`);
