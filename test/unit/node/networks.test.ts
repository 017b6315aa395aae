import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { DirectoryNetworks } from "../../../daemon/node/networks.ts";
import { openLog } from "../../../lib/base/log.ts";
import { CniError } from "../../../lib/cni/errors.ts";

let dir = "";
let lines: string[] = [];
let source: DirectoryNetworks;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-networks-"));
  mkdirSync(join(dir, "net.d"));
  lines = [];
  source = open();
});
afterEach(() => {
  source[Symbol.dispose]();
  rmSync(dir, { recursive: true });
});

function open(): DirectoryNetworks {
  const log = openLog("info", { write: (line) => void lines.push(line) });
  return new DirectoryNetworks({ networksDir: dir, cniConfDir: join(dir, "net.d") }, log);
}

/** Writes a file; the next call, as the next ADD, is in another turn of the event loop. */
async function put(name: string, text: string): Promise<void> {
  writeFileSync(join(dir, name), text);
  await turn();
}

const blue = (bridge = "br-blue") => `apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: blue}
spec:
  parameters:
    type: bridge
    bridge: ${bridge}
`;

test("networks: a new, a changed and a removed file count from the next question on", async () => {
  assert.equal(await source.podNetwork("blue"), undefined);
  await put("blue.yaml", blue());
  assert.equal((await source.podNetwork("blue"))?.spec.parameters?.["bridge"], "br-blue");
  await put("blue.yaml", blue("br-new"));
  assert.equal((await source.podNetwork("blue"))?.spec.parameters?.["bridge"], "br-new");
  rmSync(join(dir, "blue.yaml"));
  await turn();
  assert.equal(await source.podNetwork("blue"), undefined);
});

test("networks: a directory that appears later is read", async () => {
  renameSync(dir, `${dir}-away`);
  await turn();
  assert.equal(await source.podNetwork("blue"), undefined);
  renameSync(`${dir}-away`, dir);
  await put("blue.yaml", blue());
  assert.ok(await source.podNetwork("blue"));
});

test("networks: several documents, JSON, a List and all three kinds are read", async () => {
  await put(
    "all.yml",
    `# first
${blue()}---
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: n1, namespace: app}
spec: {config: '{"type":"thick"}'}
---
kind: List
apiVersion: v1
items:
- apiVersion: podnet.dev/v1alpha1
  kind: PodNetworkAttachment
  metadata: {name: fast, namespace: app}
  spec: {podNetworkName: blue}
`,
  );
  await put(
    "red.json",
    JSON.stringify({
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetwork",
      metadata: { name: "red" },
      spec: {},
    }),
  );
  await put("notes.txt", "not a manifest");
  await put(".hidden.yaml", "not: [one");
  assert.ok(await source.podNetwork("blue"));
  assert.ok(await source.podNetwork("red"));
  assert.equal((await source.nad("app", "n1"))?.config, '{"type":"thick"}');
  assert.equal((await source.podNetworkAttachment("app", "fast"))?.spec.podNetworkName, "blue");
  assert.equal(await source.nad("default", "n1"), undefined);
  assert.deepEqual(
    (await source.list()).map(({ ref, fault }) => [ref.name, fault]),
    [
      ["blue", undefined],
      ["n1", undefined],
      ["fast", undefined],
      ["red", undefined],
    ],
  );
});

test("networks: a wrong document is named by file, line and field, and does not hide the others", async () => {
  await put(
    "mixed.yaml",
    `${blue()}---
apiVersion: podnet.dev/v1alpha1
kind: PodNetwork
metadata: {name: red}
spec:
  enabled: true
  provider: NOT/valid
`,
  );
  await put("broken.yaml", "a: [\n");
  assert.ok(await source.podNetwork("blue"));
  await assert.rejects(source.podNetwork("red"), (error) => {
    assert.ok(error instanceof CniError);
    assert.equal(error.code, 101);
    assert.match(
      error.message,
      /^PodNetwork "red" can't be used: ".*mixed\.yaml" line 14: spec\.provider: "NOT\/valid"/,
    );
    return true;
  });
  const log = lines.map((line) => JSON.parse(line));
  const refused = log.filter(({ msg }) => msg === "network refused");
  assert.deepEqual(
    refused.map(({ file, line }) => [file.split("/").at(-1), line]),
    [
      ["broken.yaml", 2],
      ["mixed.yaml", 14],
    ],
  );
  assert.deepEqual(
    (await source.list()).map(({ ref, fault }) => [ref.name, fault === undefined]),
    [
      ["blue", true],
      ["red", false],
    ],
  );
});

test("networks: a name that two files have is refused by both files until one is gone", async () => {
  await put("a.yaml", blue("br-a"));
  await put("b.yaml", blue("br-b"));
  await assert.rejects(source.podNetwork("blue"), (error) => {
    assert.ok(error instanceof CniError && error.code === 101);
    assert.match(error.message, /a\.yaml" line 1 and ".*b\.yaml" line 1: remove one/);
    return true;
  });
  rmSync(join(dir, "b.yaml"));
  await turn();
  assert.equal((await source.podNetwork("blue"))?.spec.parameters?.["bridge"], "br-a");
});

test("networks: a file that did not change is reported once", async () => {
  await put("broken.yaml", "a: [\n");
  await source.list();
  await put("blue.yaml", blue());
  await source.list();
  assert.equal(lines.filter((line) => line.includes("network refused")).length, 1);
});

test("networks: a bad file is logged when it is written, without a question", async () => {
  writeFileSync(join(dir, "broken.yaml"), "a: [\n");
  const deadline = Date.now() + 5_000;
  while (!lines.some((line) => line.includes("broken.yaml")) && Date.now() < deadline) await turn();
  assert.ok(lines.some((line) => line.includes("broken.yaml")));
});

test("networks: a mounted ConfigMap's links are followed", async () => {
  mkdirSync(join(dir, "..1"));
  writeFileSync(join(dir, "..1", "blue.yaml"), blue("br-1"));
  symlinkSync("..1", join(dir, "..data"));
  symlinkSync("..data/blue.yaml", join(dir, "blue.yaml"));
  await turn();
  assert.equal((await source.podNetwork("blue"))?.spec.parameters?.["bridge"], "br-1");
  mkdirSync(join(dir, "..2"));
  writeFileSync(join(dir, "..2", "blue.yaml"), blue("br-2"));
  symlinkSync("..2", join(dir, "..new"));
  renameSync(join(dir, "..new"), join(dir, "..data"));
  await turn();
  assert.equal((await source.podNetwork("blue"))?.spec.parameters?.["bridge"], "br-2");
});

test("networks: a dangling link and a huge file are faults of their own", async () => {
  symlinkSync("nowhere", join(dir, "dangling.yaml"));
  await put("huge.yaml", "#".repeat(12_000_000));
  await put("blue.yaml", blue());
  assert.ok(await source.podNetwork("blue"));
  const text = lines.join("");
  assert.match(text, /dangling\.yaml.*ENOENT/);
  assert.match(text, /huge\.yaml.*must have at most 262144 characters/);
});

test("networks: a directory that can't be read is not one without networks", async () => {
  source[Symbol.dispose]();
  await put("file", "");
  const log = openLog("silent");
  assert.throws(
    () => new DirectoryNetworks({ networksDir: join(dir, "file"), cniConfDir: dir }, log),
    (error) => error instanceof CniError && error.code === 11,
  );
});

test("networks: the node's own configurations are found by name", async () => {
  await put(
    "net.d/10-p1.conflist",
    '{"cniVersion":"1.0.0","name":"p1","plugins":[{"type":"bridge"}]}',
  );
  assert.equal((await source.conflist("p1"))?.plugins[0]?.type, "bridge");
  assert.equal(await source.conflist("p2"), undefined);
});

test("networks: what a broken or emptied file may define is not taken for missing", async () => {
  await put("blue.yaml", blue());
  assert.ok(await source.podNetwork("blue"));
  const refused = (message: RegExp) => (error: unknown) => {
    assert.ok(error instanceof CniError);
    assert.equal(error.code, 101);
    assert.match(error.message, message);
    return true;
  };
  // An editor has emptied it and is still writing.
  await put("blue.yaml", "");
  await assert.rejects(
    source.podNetwork("blue"),
    refused(/blue\.yaml" may define it, but it is empty/),
  );
  await put("blue.yaml", "apiVersion: podnet.dev/v1alpha1\nkind: [");
  await assert.rejects(
    source.podNetwork("blue"),
    refused(/blue\.yaml" may define it, but line 2: /),
  );
  assert.equal(await source.podNetwork("red"), undefined, "the file never spoke of it");
  // A daemon that has never seen it sound.
  source[Symbol.dispose]();
  await put("blue.yaml", blue().replace("spec:", "spec: ["));
  source = open();
  await assert.rejects(source.podNetwork("blue"), refused(/may define it, but line \d+: /));
  assert.equal(await source.podNetwork("lue"), undefined);
  await put("other.yaml", "metadata: {namespace: default, name: [");
  assert.equal(await source.podNetwork("default"), undefined, "it only names the namespace");
  await put("blue.yaml", blue());
  assert.ok(await source.podNetwork("blue"));
});

test("networks: a directory that has vanished can't tell, a pipe is no manifest", async () => {
  await put("blue.yaml", blue());
  assert.ok(await source.podNetwork("blue"));
  renameSync(dir, `${dir}-gone`);
  await turn();
  await assert.rejects(source.podNetwork("blue"), { code: 11 });
  renameSync(`${dir}-gone`, dir);
  await turn();
  assert.ok(await source.podNetwork("blue"));
  execFileSync("mkfifo", [join(dir, "pipe.yaml")]);
  await turn();
  assert.ok(await source.podNetwork("blue"));
  assert.match(lines.join(""), /pipe\.yaml.*must be a regular file/);
});

test("networks: what does not even say which network it is can be asked for, with file and line", async () => {
  await put("blue.yaml", blue());
  await put("torn.yaml", `${blue()}---\nkind: PodNetwork\nmetadata: {name: [\n`);
  await put("odd.yaml", "kind: Pod\n");
  const [odd, torn, ...more] = await source.unreadable();
  assert.match(odd ?? "", /^".+\/odd\.yaml" line 1: /);
  assert.match(torn ?? "", /^".+\/torn\.yaml" line \d+: /);
  assert.deepEqual(more, []);
});
