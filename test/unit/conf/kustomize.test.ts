import assert from "node:assert/strict";
import { globSync, readFileSync, statSync } from "node:fs";
import { join, normalize } from "node:path";
import { test } from "node:test";
import { parse, parseAllDocuments } from "yaml";
import { decodeConfig } from "../../../daemon/node/config.ts";

// biome-ignore lint/suspicious/noExplicitAny: manifests are looked into
type Manifest = any;

const read = (path: string): string => readFileSync(path, "utf8");

/** Every object of a kustomization and of its bases. Throws for a file that is not there, or is in another folder (kubectl refuses it). */
function objectsOf(folder: string): Manifest[] {
  const { bases = [], resources = [] } = parse(read(join(folder, "kustomization.yaml")));
  const below = (bases as string[]).flatMap((base) => objectsOf(normalize(join(folder, base))));
  const own = (resources as string[]).flatMap((name) => {
    assert.match(
      name,
      /^[\w.-]+\.yaml$/,
      `${folder}: ${name}: kubectl up to 1.20 takes files only`,
    );
    return parseAllDocuments(read(join(folder, name)), { merge: true }).map((one) => one.toJS());
  });
  return [...below, ...own];
}

const nameOf = ({ kind, metadata }: Manifest): string =>
  `${kind} ${metadata.namespace ?? ""}/${metadata.name}`;
const overlays = {
  default: objectsOf("conf/kustomize/default"),
  legacy: objectsOf("conf/kustomize/legacy"),
};

for (const [name, objects] of Object.entries(overlays)) {
  test(`kustomization "${name}": each object once, in podnet-system or of the whole cluster`, () => {
    const names = objects.map(nameOf);
    assert.deepEqual(names, [...new Set(names)]);
    const accounts = names.filter((one) => one.startsWith("ServiceAccount"));
    assert.deepEqual(accounts.toSorted(), [
      "ServiceAccount podnet-system/podnet-controller",
      "ServiceAccount podnet-system/podnetd",
    ]);
    const elsewhere = objects
      .map(({ metadata }) => metadata.namespace)
      .filter((one) => one !== undefined && one !== "podnet-system");
    assert.deepEqual(elsewhere, []);
  });
}

test('kustomization "legacy": nothing that an API server of 1.20 or its kubectl refuses', () => {
  const text = JSON.stringify(overlays.legacy);
  assert.doesNotMatch(text, /x-kubernetes-validations|ValidatingAdmissionPolicy|appArmorProfile/);
  for (const file of globSync("conf/kustomize/**/kustomization.yaml")) {
    assert.doesNotMatch(read(file), /^(components|patches|replacements):/m, file);
  }
});

const daemonSet = overlays.legacy.find(({ kind }) => kind === "DaemonSet");
const { spec } = daemonSet.spec.template;
const [container] = spec.containers;

test("the node agent: Guaranteed, critical, on every node, not privileged", () => {
  assert.deepEqual(container.resources.requests, container.resources.limits);
  assert.deepEqual(Object.keys(container.resources.limits).toSorted(), ["cpu", "memory"]);
  assert.equal(spec.priorityClassName, "system-node-critical");
  assert.deepEqual(spec.tolerations, [{ operator: "Exists" }]);
  assert.equal(spec.hostNetwork, true);
  const { privileged, capabilities, readOnlyRootFilesystem } = container.securityContext;
  assert.deepEqual([privileged, capabilities.drop, readOnlyRootFilesystem], [false, ["ALL"], true]);
  const mounts = container.volumeMounts.map(({ name }: Manifest) => name);
  assert.deepEqual(
    mounts,
    spec.volumes.map(({ name }: Manifest) => name),
    "a mount a volume",
  );
});

test("the node agent's configuration is one that podnetd takes, and its paths are mounted", () => {
  const config = decodeConfig(
    {},
    { name: "podnetd.yaml", text: read("conf/kustomize/node/podnetd.yaml") },
  );
  assert.equal(config.install, true);
  const mounted = container.volumeMounts.map(({ mountPath }: Manifest) => mountPath);
  const paths = [
    ...[config.stateDir, config.cniConfDir, ...config.cniBinDir, config.cniCacheDir],
    ...[config.cgroupDir, join(config.sysctlDir, "net")],
  ];
  for (const path of paths) assert.ok(mounted.includes(path), path);
  assert.match(container.startupProbe.httpGet.host, /^127\.0\.0\.1$/);
  assert.equal(config.metrics?.port, container.startupProbe.httpGet.port);
});

test("one image, of this release, everywhere", () => {
  const version = JSON.parse(read("package.json")).version;
  const images = globSync("conf/kustomize/**/*.yaml").flatMap((file) =>
    [...read(file).matchAll(/^\s+image: (\S+)$/gm)].map(([, image]) => image),
  );
  assert.deepEqual([...new Set(images)], [`localhost/podnet:${version}`]);
  assert.ok(images.length >= 3);
});

/** The first cells of a page's tables. */
function cells(page: string, heading: string): string[] {
  const section = read(page).split(`## ${heading}\n`)[1]?.split(/^## /m)[0] ?? "";
  return [...section.matchAll(/^\| (.+?) \|/gm)].map(([, cell = ""]) => cell);
}

test("docs/install.md has a reason for each capability and each folder of the node agent, and no other", () => {
  const documented = cells("docs/install.md", "The pod of the node agent").map((cell) =>
    cell.replaceAll("`", ""),
  );
  const capabilities: string[] = container.securityContext.capabilities.add;
  assert.deepEqual(
    documented.filter((cell) => /^[A-Z]+_[A-Z_]+$/.test(cell)),
    capabilities,
  );
  const folders = spec.volumes.flatMap(({ hostPath }: Manifest) => hostPath?.path ?? []);
  assert.deepEqual(
    documented.filter((cell) => cell.startsWith("/")),
    folders,
  );
});

/** `get, list \`pods\``: one for each rule and resource. */
function rulesOf(objects: readonly Manifest[], name: string): string[] {
  return objects
    .filter(({ kind, metadata }) => /^(Cluster)?Role$/.test(kind) && metadata.name === name)
    .flatMap(({ rules }) => rules)
    .flatMap(({ verbs, resources }: Manifest) =>
      resources.map((one: string) => `${verbs.join(", ")} ${one}`),
    )
    .toSorted();
}

function documentedRules(page: string, heading: string): string[] {
  return cells(page, heading)
    .flatMap((cell) => {
      const [verbs = "", ...resources] = cell.split(/ ?`/).filter((part) => !/^,? ?$/.test(part));
      return resources.map((one) => `${verbs} ${one}`);
    })
    .toSorted();
}

test("the rights of the node agent and of uninstalling are documented line by line, and no others", () => {
  const node = rulesOf(overlays.default, "podnet-node");
  assert.ok(node.length > 5);
  assert.deepEqual(documentedRules("docs/kubernetes.md", "Rights"), node);
  const uninstall = rulesOf(objectsOf("conf/kustomize/uninstall"), "podnet-uninstall");
  assert.deepEqual(documentedRules("docs/uninstall.md", "Rights of the Job"), uninstall);
});

/** Kinds of objects that a program's sources name. */
function namedResources(...patterns: string[]): Set<string> {
  const table = read("lib/kube/resource.ts");
  const plurals = new Map(
    [...table.matchAll(/(\w+): \{[^}]*?plural: "([\w-]+)"/g)].map(([, key = "", plural = ""]) => [
      key,
      plural,
    ]),
  );
  const found = new Set<string>();
  for (const file of patterns.flatMap((pattern) => globSync(pattern))) {
    const text = read(file);
    for (const [, key = ""] of text.matchAll(/resources\.(\w+)/g)) {
      const plural = plurals.get(key);
      if (plural !== undefined) found.add(plural);
    }
    for (const [, plural = ""] of text.matchAll(
      /\b(resourceclaims|resourceslices|subjectaccessreviews)\b/g,
    ))
      found.add(plural);
  }
  return found;
}

test("the node agent may do something with each kind that its sources name, and with no other", () => {
  const used = namedResources("daemon/node/**/*.ts", "lib/kube/events.ts", "lib/kube/dra.ts");
  const [role] = overlays.default.filter(
    ({ kind, metadata }) => kind === "ClusterRole" && metadata.name === "podnet-node",
  );
  const granted: string[] = role.rules.flatMap(({ resources }: Manifest) => resources);
  const kinds = new Set(granted.map((one) => one.split("/")[0] ?? ""));
  assert.deepEqual([...used].toSorted(), [...kinds].toSorted());
});

test("scripts of the build can be executed", () => {
  for (const file of globSync("conf/build/*.sh"))
    assert.notEqual(statSync(file).mode & 0o111, 0, file);
});
