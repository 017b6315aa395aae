import assert from "node:assert/strict";
import { test } from "node:test";
import { asCniError } from "../../../daemon/plugins/shared/errors.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";

const system = (code: string) => Object.assign(new Error(`${code}: it failed`), { code });

test("what passes by itself is code 11 where it would be podnet's or the caller's fault, and nowhere else", () => {
  for (const code of [cniCode.ioFailure, cniCode.internal]) {
    assert.equal(asCniError(system("ENOSPC"), code, "write").code, cniCode.tryAgainLater);
    assert.equal(asCniError(system("EROFS"), code, "write").code, cniCode.tryAgainLater);
    assert.equal(asCniError(system("EACCES"), code, "write").code, code);
  }
  const wrong = asCniError(system("EBUSY"), cniCode.invalidNetworkConfig, "join");
  assert.equal(wrong.code, cniCode.invalidNetworkConfig);
});

test("an error that says what failed stays as it is", () => {
  const error = new CniError(cniCode.addressUnavailable, "no address left");
  assert.equal(asCniError(error, cniCode.internal, "write"), error);
});
