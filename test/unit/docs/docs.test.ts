import assert from "node:assert/strict";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { configKeys } from "../../../daemon/node/config-schema.ts";
import { registerInstallMetrics } from "../../../daemon/node/install/metrics.ts";
import { registerKubeMetrics } from "../../../daemon/node/kube/metrics.ts";
import { Metrics } from "../../../daemon/node/metrics.ts";
import { registerOperatorMetrics } from "../../../daemon/node/operator-metrics.ts";
import { createInProcessIpam, inProcessPlugins } from "../../../daemon/plugins/registry.ts";
import { cniCode } from "../../../lib/cni/errors.ts";

const read = (path: string): string => readFileSync(path, "utf8");

/** The first cell of each row of a page's tables, without marks. */
function firstCells(page: string): string[] {
  return [...page.matchAll(/^\| `?([^|`]+?)`? +\|/gm)].map((match) => match[1] ?? "");
}

test("docs/errors.md has each error code with its name, and no other", () => {
  const rows = [...read("docs/errors.md").matchAll(/^\| (\d+) \| (\w+) \|/gm)];
  const documented = Object.fromEntries(rows.map(([, code, name]) => [name, Number(code)]));
  assert.deepEqual(documented, { ...cniCode });
});

test("docs/configuration.md has each key of the daemon's configuration, and no other", () => {
  const page = read("docs/configuration.md").split("## Keys of podnet's own CNI configuration")[0];
  const keys = firstCells(page ?? "").filter(
    (cell) => /^[a-z][a-zA-Z0-9]+$/.test(cell) && cell !== "key",
  );
  assert.deepEqual(keys.toSorted(), [...configKeys].toSorted());
});

test("docs/metrics.md has each metric of podnet, and no other", async () => {
  const none = () => ({ add: 0, del: 0 });
  const zero = () => 0;
  const { registry } = new Metrics({
    attachments: zero,
    sandboxes: zero,
    pending: zero,
    waiting: none,
    running: none,
    unreadable: zero,
  });
  const publisher = { waiting: 0, droppedEvents: 0 };
  registerInstallMetrics(registry, { fault: undefined, restored: { conflist: 0, stub: 0 } });
  registerKubeMetrics(registry, { kube: { watches: () => [] }, publisher });
  registerOperatorMetrics(registry, {
    version: "0",
    calls: { oldest: zero },
    leaks: { counts: () => ({ sandbox: 0, address: 0, link: 0, device: 0 }) },
    oldestPending: zero,
    foreignSandboxes: async () => 0,
  });
  const names = (await registry.getMetricsAsJSON()).map(({ name }) => name);
  const documented = [...read("docs/metrics.md").matchAll(/^\| `(podnet_\w+)/gm)].map(
    ([, name]) => name,
  );
  assert.deepEqual(
    documented.toSorted(),
    names.filter((name) => name.startsWith("podnet_")).toSorted(),
  );
});

test("docs/plugins.md has each type that runs in process, and no other", () => {
  const cells = firstCells(read("docs/plugins.md").split("## Differences")[0] ?? "");
  const types = cells.filter((cell) => /^[a-z][a-z-]+$/.test(cell) && cell !== "type");
  const inProcess = [...inProcessPlugins.keys(), ...createInProcessIpam().keys()];
  assert.deepEqual(types.toSorted(), inProcess.toSorted());
});

const pages = [
  "README.md",
  "ARCHITECTURE.md",
  "DECISIONS.md",
  "CHANGELOG.md",
  ...readdirSync("docs").map((name) => `docs/${name}`),
];

/** The anchors of a page's headings, as the usual viewers make them. */
function anchors(page: string): readonly string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replace(/\s/g, "-"),
  );
}

test("links between the documents lead somewhere, to a heading too", () => {
  let links = 0;
  for (const page of pages) {
    for (const [, target = "", anchor] of read(page).matchAll(
      /\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)/g,
    )) {
      const path = target === "" ? page : join(dirname(page), target);
      assert.ok(existsSync(path), `${page}: ${target}`);
      if (anchor !== undefined)
        assert.ok(anchors(read(path)).includes(anchor), `${page}: ${anchor}`);
      links++;
    }
  }
  assert.ok(links > 40);
});

test("files of this repository that the documents name are there", () => {
  const named = pages.flatMap((page) =>
    [...read(page).matchAll(/`((?:test|conf|cmd|daemon|lib)\/[\w./*-]+)`/g)].map(
      ([, path = ""]) => `${page}: ${path}`,
    ),
  );
  assert.ok(named.length > 20);
  const gone = named.filter((one) => globSync(one.replace(/^.+: /, "")).length === 0);
  assert.deepEqual(gone, []);
});
