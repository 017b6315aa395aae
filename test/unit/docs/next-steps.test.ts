import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { nextStep } from "../../../daemon/node/next-steps.ts";
import { podnetVersion } from "../../../lib/base/version.ts";

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
