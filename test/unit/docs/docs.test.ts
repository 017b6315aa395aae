import assert from "node:assert/strict";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import type { Registry } from "prom-client";
import { AdmissionMetrics } from "../../../daemon/controller/admit/metrics.ts";
import { ControllerMetrics } from "../../../daemon/controller/metrics.ts";
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

/** A metric as it is registered, without the type's own names (`le` of a bucket). */
interface Known {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
}

const isPodnets = ({ name }: Known) => name.startsWith("podnet_");

function known(registry: Registry): Known[] {
  return registry.getMetricsAsArray().map((metric) => ({
    name: Reflect.get(metric, "name"),
    type: String(metric.constructor.name).toLowerCase(),
    labels: Reflect.get(metric, "labelNames"),
  }));
}

/** Every metric of podnetd. */
function daemonMetrics(): Known[] {
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
  return known(registry);
}

/** Every metric of podnet-controller. */
function controllerMetrics(): Known[] {
  const sources = { watches: () => [], leading: () => false, droppedEvents: () => 0 };
  const { registry } = new ControllerMetrics(sources);
  new AdmissionMetrics(registry, () => undefined);
  return known(registry);
}

/** The rows of a page's tables that are metrics: `name{label,label}`, and the type where the table has one. */
function metricRows(page: string) {
  const rows = page.matchAll(
    /^\| `(podnet_\w+)(?:\{([\w,]+)\})?` \| (?:(gauge|counter|histogram) \|)?/gm,
  );
  return [...rows].map(([, name = "", labels, type]) => ({
    name,
    labels: labels?.split(",") ?? [],
    type,
  }));
}

test("docs/metrics.md has each metric of podnet with its type and labels, and no other", () => {
  const all = [...daemonMetrics(), ...controllerMetrics()].filter(isPodnets);
  const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);
  assert.deepEqual(
    metricRows(read("docs/metrics.md")).toSorted(byName),
    all.map(({ name, labels, type }) => ({ name, labels, type })).toSorted(byName),
  );
});

test("docs/controller.md and docs/admission.md together explain each metric of the controller", () => {
  const told = ["docs/controller.md", "docs/admission.md"].flatMap((path) =>
    metricRows(read(path)),
  );
  const names = told.map(({ name }) => name);
  assert.deepEqual(
    names.toSorted(),
    controllerMetrics()
      .filter(isPodnets)
      .map(({ name }) => name)
      .toSorted(),
  );
});

test("the alerts name metrics that there are, with labels that they have, and cover every part of the controller", () => {
  const page = read("docs/operations.md");
  const all = new Map([...daemonMetrics(), ...controllerMetrics()].map((one) => [one.name, one]));
  const used = new Set<string>();
  for (const [text, name = "", labels = ""] of page.matchAll(
    /\b((?:podnet|process)_\w+)(?:\{([^}]*)\})?/g,
  )) {
    const plain = name.replace(/_(bucket|count|sum)$/, "");
    const metric = all.get(name) ?? all.get(plain);
    assert.ok(metric, `${text}: no such metric`);
    assert.ok(all.has(name) || metric.type === "histogram", `${text}: ${metric.type}`);
    used.add(metric.name);
    for (const [, label = ""] of labels.matchAll(/(\w+)[=!]/g))
      assert.ok([...metric.labels, "job"].includes(label), `${text}: no label ${label}`);
  }
  const unused = controllerMetrics()
    .filter(isPodnets)
    .map(({ name }) => name)
    .filter((name) => !used.has(name));
  assert.deepEqual(unused, ["podnet_controller_objects"], "a size, no fault");
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

test("docs/testing.md names a test that there is for each acceptance example", () => {
  const section = read("docs/testing.md").split("## Acceptance examples\n")[1]?.split(/^## /m)[0];
  const rows = [...(section ?? "").matchAll(/^\| E-(\d+) [^|]*\| `([^`]+)` \| (.+) \|$/gm)];
  for (const [, number, file = "", title = ""] of rows) {
    // A title is a string literal, with its quotes escaped or not.
    const titles = [...read(file).matchAll(/\btest\(\s*(["'`])((?:\\.|(?!\1).)*)\1/gs)].map(
      ([, , text = ""]) => text,
    );
    assert.ok(
      titles.some((one) => one.includes(title)),
      `E-${number}: ${file}: ${title}`,
    );
  }
  const covered = new Set(rows.map(([, number]) => Number(number)));
  assert.deepEqual(
    [...covered].toSorted((a, b) => a - b),
    Array.from({ length: 25 }, (_, i) => i + 1),
  );
});
