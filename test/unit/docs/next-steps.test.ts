import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { nextStep } from "../../../daemon/node/next-steps.ts";
import { podnetVersion } from "../../../lib/base/version.ts";
import { cniCode } from "../../../lib/cni/errors.ts";

test("docs/errors.md says of each code what podnetctl explain says", () => {
  const page = readFileSync("docs/errors.md", "utf8");
  const rows = [...page.matchAll(/^\| (\d+) \| (\w+) \| .* \| (.+?) \|$/gm)];
  assert.ok(rows.length > 15);
  for (const [, code, name, step = ""] of rows) {
    assert.deepEqual(nextStep(Number(code)), { name, step: step.replaceAll("`", "") });
  }
});

test("the version that podnetd and podnetctl tell is package.json's", () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  assert.equal(podnetVersion, version);
});

test("docs/operations.md speaks of metrics that exist, and of each error code", () => {
  const page = readFileSync("docs/operations.md", "utf8");
  const metrics = readFileSync("docs/metrics.md", "utf8");
  const named = [...page.matchAll(/podnet_\w+/g)].map(([name]) =>
    name.replace(/_(bucket|count|sum)$/, ""),
  );
  assert.ok(named.length > 15);
  for (const name of named) assert.match(metrics, new RegExp(`^\\| \`${name}\\b`, "m"), name);
  const codes = [...(page.split("## Error codes")[1] ?? "").matchAll(/^\| ([\d, ]+) \|/gm)].flatMap(
    ([, list = ""]) => list.split(", ").map(Number),
  );
  assert.deepEqual(
    codes.toSorted((a, b) => a - b),
    Object.values(cniCode).toSorted((a, b) => a - b),
  );
});
