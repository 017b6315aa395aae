import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  appendLine,
  createFile,
  ensurePrivateDir,
  openPlainFile,
  readPlainFile,
  removeFile,
  replaceFile,
} from "../../../lib/base/files.ts";

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

test("a file is made with its text or not at all, and what a kill left does not stand in its way", () => {
  const [path, temporary] = [join(dir, "made"), join(dir, ".made-tmp")];
  writeFileSync(temporary, "left by a kill");
  assert.equal(createFile(path, temporary, "one"), true);
  assert.equal(createFile(path, temporary, "two"), false);
  assert.equal(readFileSync(path, "utf8"), "one");
  assert.equal(mode(path), "600");
  assert.ok(!existsSync(temporary));
});

test("a temporary file that can't be removed makes no failure of what was done", () => {
  const [path, temporary] = [join(dir, "done"), join(dir, "nowhere", "tmp")];
  assert.throws(() => createFile(path, temporary, "x"), /ENOENT/);
  assert.ok(!existsSync(path));
});

test("links, pipes and folders are no plain files: neither read nor written, and nothing hangs", () => {
  const [file, link, pipe, folder] = ["plain", "link", "pipe", "folder"].map((name) =>
    join(dir, name),
  ) as [string, string, string, string];
  writeFileSync(file, "0123456789");
  symlinkSync(file, link);
  execFileSync("mkfifo", [pipe]);
  mkdirSync(folder);
  assert.equal(readPlainFile(file, 4), "0123");
  assert.equal(readPlainFile(file, 100), "0123456789");
  for (const path of [link, pipe, folder]) {
    assert.throws(() => readPlainFile(path, 100), /ELOOP|no plain file/, path);
    assert.throws(() => openPlainFile(path, constants.O_WRONLY), /ELOOP|ENXIO|EISDIR/, path);
    assert.throws(() => appendLine(path, "x"), /ELOOP|ENXIO|EISDIR/, path);
  }
  const fd = openPlainFile(join(dir, "new"), constants.O_WRONLY);
  closeSync(fd);
  assert.equal(mode(join(dir, "new")), "600");
});
