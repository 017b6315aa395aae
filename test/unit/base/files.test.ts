import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { appendLine, ensurePrivateDir, removeFile, replaceFile } from "../../../lib/base/files.ts";

let dir = "";
before(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-test-"));
});
after(() => rmSync(dir, { recursive: true, force: true }));

const mode = (path: string): string => (statSync(path).mode & 0o777).toString(8);

test("a private folder is made with those above it, and may be there already", () => {
  const path = join(dir, "a", "b", "c");
  ensurePrivateDir(path);
  ensurePrivateDir(path);
  assert.deepEqual([mode(path), mode(join(dir, "a"))], ["700", "755"]);
});

test("where a file system makes no folders, or a file is in the way, the error comes at once", () => {
  assert.throws(() => ensurePrivateDir("/proc/podnet-test/x"), /ENOENT|EPERM|EACCES/);
  writeFileSync(join(dir, "file"), "");
  assert.throws(() => ensurePrivateDir(join(dir, "file")), /EEXIST/);
  assert.throws(() => ensurePrivateDir(join(dir, "file", "x")), /ENOTDIR|EEXIST/);
});

test("a file is replaced as a whole, appended to, and removed twice", () => {
  const path = join(dir, "text");
  replaceFile(path, "one\n");
  appendLine(path, "two\n");
  assert.equal(readFileSync(path, "utf8"), "one\ntwo\n");
  assert.equal(mode(path), "600");
  replaceFile(path, "three\n");
  assert.equal(readFileSync(path, "utf8"), "three\n");
  removeFile(path);
  removeFile(path);
});
