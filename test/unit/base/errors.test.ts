import assert from "node:assert/strict";
import { readdirSync, readFileSync, renameSync } from "node:fs";
import { test } from "node:test";
import { errorText, fileFault } from "../../../lib/base/errors.ts";

const caught = (work: () => unknown): unknown => {
  try {
    work();
  } catch (error) {
    return error;
  }
  return assert.fail("nothing was thrown");
};

const failing: readonly (readonly [string, () => unknown, string])[] = [
  ["a file that is missing", () => readFileSync("/nowhere"), "no such file or directory"],
  ["a folder in place of a file", () => readFileSync("/"), "illegal operation on a directory"],
  ["a file in place of a folder", () => readdirSync("/etc/passwd"), "not a directory"],
  ["a path with quotes", () => readFileSync("/no', where"), "no such file or directory"],
  ["two paths", () => renameSync("/nowhere", "/there"), "no such file or directory"],
];

for (const [what, work, reason] of failing) {
  test(`the reason of ${what} is told without the path`, () => {
    assert.equal(fileFault(caught(work)), reason);
  });
}

test("what is no fault of a file is told as it is", () => {
  for (const error of [new Error("EACH: has, a 'comma'"), "text", new RangeError("out of it")]) {
    assert.equal(fileFault(error), errorText(error));
  }
});
