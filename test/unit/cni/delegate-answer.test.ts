import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeError } from "../../../lib/cni/delegate-answer.ts";

const shapes: readonly [string, readonly [number, string, string | undefined] | undefined][] = [
  ['{"cniVersion":"1.0.0","code":7,"msg":"m","details":"d"}', [7, "m", "d"]],
  ['{"code":7,"msg":"m"}', [7, "m", undefined]],
  ['{"code":7,"msg":"m","details":""}', [7, "m", undefined]],
  ['{"code":7,"msg":""}', [7, "failed without a message", undefined]],
  ['{"code":0,"msg":"m"}', [999, "m", undefined]],
  ['{"code":"7","msg":"m"}', undefined],
  ['{"code":7}', undefined],
  ['{"ips":[]}', undefined],
  ["[]", undefined],
  ["", undefined],
  ["{", undefined],
];
for (const [text, wanted] of shapes) {
  test(`delegate-answer: ${text || "nothing"} is ${wanted === undefined ? "no error object" : "an error"}`, () => {
    const error = decodeError(text);
    assert.deepEqual(error && [error.code, error.message, error.details], wanted);
  });
}
