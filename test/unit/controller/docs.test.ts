import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { ControllerMetrics } from "../../../daemon/controller/metrics.ts";

const page = readFileSync("docs/controller.md", "utf8");

test("docs/controller.md has every metric of the controller, and no other", async () => {
  const sources = { watches: () => [], leading: () => false, droppedEvents: () => 0 };
  const { registry } = new ControllerMetrics(sources);
  const made = (await registry.getMetricsAsJSON())
    .map(({ name }) => name)
    .filter((name) => name.startsWith("podnet_"));
  const told = [...page.matchAll(/^\| `(podnet_controller_\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(told.toSorted(), made.toSorted());
});

test("docs/controller.md has every right of the controller's role", () => {
  const rights = page.slice(page.indexOf("## Rights"));
  const role = parseAllDocuments(
    readFileSync("conf/kustomize/controller/rbac.yaml", "utf8"),
  ).flatMap((document) => document.toJS().rules ?? []) as { resources: string[] }[];
  for (const { resources } of role)
    for (const resource of resources) assert.ok(rights.includes(resource), resource);
});
