import assert from "node:assert/strict";
import { test } from "node:test";
import { openSandbox } from "../../../daemon/node/sandbox.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const refused: readonly (readonly [path: string, code: number, reason: string])[] = [
  ["/run/nowhere/x", 3, "it does not exist"],
  ["/etc/passwd", 8, "it is not a namespace"],
  ["/proc/self/ns/mnt", 8, "it is a namespace of another kind"],
];
for (const [path, code, reason] of refused) {
  test(`openSandbox, "${path}", fails with code ${code}, and says once what was tried and why not`, () => {
    assert.throws(
      () => openSandbox(path),
      (error) => {
        assert.ok(error instanceof CniError, String(error));
        assert.equal(error.code, code);
        assert.equal(error.message, `open network namespace "${path}": ${reason}`);
        return true;
      },
    );
  });
}
