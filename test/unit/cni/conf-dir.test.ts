import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { findConflist, readConfDir, readConflist } from "../../../lib/cni/conf-dir.ts";
import { CniError } from "../../../lib/cni/errors.ts";

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-conf-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

function put(name: string, text: string): string {
  const path = join(dir, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  return path;
}

test("conf-dir: files of the three extensions are read in the order of their names", async () => {
  put("20-b.conf", '{"name":"b","type":"x"}');
  put("10-a.conflist", '{"name":"a","plugins":[{"type":"x"}]}');
  put("30-c.json", '{"name":"c","type":"x"}');
  put("05-d.txt", '{"name":"d","type":"x"}');
  put("folder.conf/e.conf", "");
  const { lists, faults } = await readConfDir(dir);
  assert.deepEqual(
    lists.map(({ name }) => name),
    ["a", "b", "c"],
  );
  assert.deepEqual(faults, []);
});

test("conf-dir: the first file with the name is the network's", async () => {
  put("1.conf", '{"name":"a","type":"first"}');
  put("2.conf", '{"name":"a","type":"second"}');
  assert.equal((await findConflist(dir, "a"))?.plugins[0]?.type, "first");
  assert.equal(await findConflist(dir, "b"), undefined);
});

test("conf-dir: a wrong file hides no other, and is named when nothing is found", async () => {
  const wrong = put("1.conf", "{");
  put("2.conf", '{"name":"a","type":"x"}');
  assert.equal((await findConflist(dir, "a"))?.name, "a");
  await assert.rejects(
    findConflist(dir, "b"),
    (error: unknown) =>
      error instanceof CniError && error.code === 7 && error.message.includes(wrong),
  );
});

test("conf-dir: a directory that is not there holds nothing", async () => {
  assert.deepEqual(await readConfDir(join(dir, "none")), { lists: [], faults: [] });
});

test("conf-dir: plugins come also from the directory of the network's name", async () => {
  const path = put("net.conflist", '{"name":"blue","cniVersion":"1.0.0","plugins":[{"type":"a"}]}');
  put("blue/2.conf", '{"type":"c"}');
  put("blue/1.conf", '{"type":"b"}');
  put("blue/0.json", '{"type":"not-read"}');
  const types = (await readConflist(path)).plugins.map(({ type }) => type);
  assert.deepEqual(types, ["a", "b", "c"]);
});

test("conf-dir: a list without inlined plugins lives on its directory alone", async () => {
  const path = put("net.conflist", '{"name":"blue","cniVersion":"1.0.0"}');
  await assert.rejects(readConflist(path), /at least one plugin/);
  put("blue/1.conf", '{"type":"b"}');
  assert.equal((await readConflist(path)).plugins.length, 1);
});

test("conf-dir: loadOnlyInlinedPlugins leaves the directory alone", async () => {
  const path = put(
    "n.conflist",
    '{"name":"blue","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}',
  );
  put("blue/1.conf", "{");
  assert.equal((await readConflist(path)).plugins.length, 1);
});

test("conf-dir: an error names the file", async () => {
  const path = put("n.conflist", '{"name":"blue","plugins":[{"type":"a"}]}');
  const wrong = put("blue/1.conf", "{");
  await assert.rejects(readConflist(path), (error: unknown) => {
    return error instanceof CniError && error.code === 6 && error.message.includes(wrong);
  });
  await assert.rejects(readConflist(join(dir, "none.conf")), (error: unknown) => {
    return error instanceof CniError && error.code === 5 && error.message.includes("none.conf");
  });
});
