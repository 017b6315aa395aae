// Runs in the virtual machine: node inside.mjs FOLDER NAME FILE... ; leaves the counts in FOLDER/tally.json.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { runFiles } from "../helpers/report.ts";

const [folder = "", name = "", ...files] = process.argv.slice(2);
const tally = await runFiles({
  files,
  concurrency: 1,
  name: name === "" ? undefined : name,
  ci: process.env["CI"] === "true",
});
writeFileSync(join(folder, "tally.json"), JSON.stringify(tally));
process.exitCode = tally.failed === 0 ? 0 : 1;
