// Folder rules: runs dependency-cruiser with depcruise.mjs over all our modules, and fails as well when it read fewer modules than
// there are files or when a rule's pattern matches none: a rule that checks nothing looks like one that holds.
import { globSync } from "node:fs";
import { cruise } from "dependency-cruiser";
import extractTSConfig from "dependency-cruiser/config-utl/extract-ts-config";
import rules from "./depcruise.mjs";

const folders = ["cmd", "daemon", "lib", "test"];
const files = folders.flatMap((folder) => globSync(`${folder}/**/*.ts`));
const { output } = await cruise(
  folders,
  { ...rules.options, ruleSet: { forbidden: rules.forbidden }, validate: true },
  undefined,
  { tsConfig: extractTSConfig(rules.options.tsConfig.fileName) },
);
const modules = output.modules.map((module) => module.source);
const faults = output.summary.violations
  .filter((one) => one.rule.severity === "error")
  .map((one) => `${one.rule.name}: ${one.from} -> ${one.cycle?.map((step) => step.name).join(" -> ") ?? one.to}`);

const read = new Set(modules);
faults.push(...files.filter((file) => !read.has(file)).map((file) => `${file}: not read by dependency-cruiser`));
for (const rule of rules.forbidden) {
  for (const side of ["from", "to"]) {
    // Built-in modules that nobody imports yet are no module here, and so can't be required to match.
    const patterns = [rule[side].path ?? []].flat().filter((pattern) => !pattern.startsWith("^(node:)?"));
    for (const pattern of patterns) {
      if (!modules.some((module) => new RegExp(pattern).test(module))) {
        faults.push(`${rule.name}: the pattern ${pattern} (${side}) matches no module, so the rule checks nothing`);
      }
    }
  }
}
if (faults.length > 0) {
  process.stderr.write(`${faults.map((fault) => `layers: ${fault}`).join("\n")}\n`);
  process.exitCode = 1;
}
