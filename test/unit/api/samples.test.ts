import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { parse } from "yaml";
import { readManifests } from "../../../daemon/node/manifests.ts";
import { annotations } from "../../../lib/api/names.ts";
import { readSelectionText } from "../../../lib/api/selection-list.ts";
import { isJsonObject } from "../../../lib/base/json.ts";

const dir = new URL("../../../conf/samples/", import.meta.url);
const names = ["default", "blue", "red"];

for (const name of names) {
  test(`samples: ${name}.yaml is the PodNetwork "${name}", without a fault or a warning`, () => {
    const file = new URL(`${name}.yaml`, dir);
    const [manifest, ...others] = readManifests(file.pathname, readFileSync(file, "utf8"));
    assert.deepEqual(others, []);
    assert.deepEqual(manifest?.ref, { kind: "podNetwork", name });
    assert.deepEqual(manifest?.faults, []);
    assert.deepEqual(manifest?.warnings, []);
  });
}

test("samples: the pod's list names the networks that are there", () => {
  const pod: unknown = parse(readFileSync(new URL("pod.yaml", dir), "utf8"));
  assert.ok(isJsonObject(pod) && isJsonObject(pod["metadata"]));
  const given = pod["metadata"]["annotations"];
  const text = isJsonObject(given) ? given[annotations.networks] : undefined;
  assert.ok(typeof text === "string");
  const from = { dialect: "podnet", origin: "pod.yaml", namespace: "default" } as const;
  assert.deepEqual(
    readSelectionText(from, text).map(({ ref }) => ref.name),
    names,
  );
  assert.ok(globSync(new URL("*.yaml", dir).pathname).length >= 4);
});
