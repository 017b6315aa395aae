import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";

let dir = "";
before(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-ctl-"));
});
after(() => rmSync(dir, { recursive: true }));

function run(...args: string[]): { readonly status: number | null; readonly stderr: string } {
  const program = resolve("cmd/podnetctl/main.ts");
  const done = spawnSync(process.execPath, [program, ...args], { encoding: "utf8", cwd: dir });
  return { status: done.status, stderr: done.stderr.trim() };
}

const cases: readonly (readonly [string[], number, RegExp])[] = [
  [["--timeout", "abc", "ls"], 2, /^podnetctl: --timeout "abc": must be a number of seconds/],
  [["--socket", "/nowhere/s", "ls"], 1, /^podnetctl: reach podnetd at "\/nowhere\/s": no such/],
  [["resolve", "-f", "/nowhere"], 1, /^podnetctl: read "\/nowhere": no such file or directory$/],
  [["resolve", "-f", "broken.yaml"], 1, /^podnetctl: read "broken.yaml": line 1: Nested mappings/],
  [["resolve", "-f", "other.yaml"], 1, /^podnetctl: decode "other.yaml": kind: must be Pod; meta/],
  [["resolve", "-f", "two.yaml"], 1, /^podnetctl: read "two.yaml": has 2 objects: must have one/],
  [["add", "web"], 2, /^podnetctl: netns "web": must be an absolute path/],
  [["explain", "web", "--container", "c"], 2, /^podnetctl: explain: name either a pod or a cont/],
];

for (const [args, status, message] of cases) {
  test(`podnetctl ${args.join(" ")}: one line says what is wrong`, () => {
    writeFileSync(join(dir, "broken.yaml"), "a: b: c\n");
    writeFileSync(join(dir, "other.yaml"), "a: b\n");
    writeFileSync(join(dir, "two.yaml"), "kind: Pod\n---\nkind: Pod\n");
    const done = run(...args);
    assert.equal(done.status, status);
    assert.match(done.stderr, message);
    assert.equal(done.stderr.split("\n").length, 1, done.stderr);
  });
}

test("what the parser of the command line refuses begins with the program's name", () => {
  assert.match(run("lss").stderr, /^podnetctl: unknown command 'lss'\n/);
  const level = run("log-level", "loud");
  assert.equal(level.status, 2);
  assert.match(level.stderr, /^podnetctl: command-argument value 'loud' is invalid/);
});
