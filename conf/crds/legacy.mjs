// node conf/crds/legacy.mjs [FOLDER]: writes conf/crds/legacy (or FOLDER) from the files beside it, without what API servers before
// 1.25 refuse: rules in CEL. There nothing keeps specs immutable but an admission webhook.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";

const here = import.meta.dirname;
const [, , target = join(here, "legacy")] = process.argv;
const { resources } = parse(readFileSync(join(here, "kustomization.yaml"), "utf8"));

function without(value) {
  if (Array.isArray(value)) return value.map(without);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => key !== "x-kubernetes-validations")
      .map(([key, item]) => [key, without(item)]),
  );
}

mkdirSync(target, { recursive: true });
for (const file of resources) {
  const object = parse(readFileSync(join(here, file), "utf8"));
  const head = `# Written by conf/crds/legacy.mjs from ../${file}\n`;
  writeFileSync(join(target, file), head + stringify(without(object), { lineWidth: 0, aliasDuplicateObjects: false }));
}
writeFileSync(join(target, "kustomization.yaml"), readFileSync(join(here, "kustomization.yaml")));
