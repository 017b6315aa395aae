import assert from "node:assert/strict";
import { test } from "node:test";
import { failureReason } from "../../../daemon/node/kube/events.ts";

test("reasons follow the error's class", () => {
  assert.deepEqual(
    [
      failureReason(100, ""),
      failureReason(102, ""),
      failureReason(101, ""),
      failureReason(106, ""),
      failureReason(108, 'range "10.0.0.0/30" is exhausted'),
      failureReason(108, 'address "10.0.0.5" is in use'),
      failureReason(107, ""),
      failureReason(11, ""),
    ],
    [
      ...["NetworkNotFound", "NetworkNotFound", "NetworkNotReady", "SelectionInvalid"],
      ...["AddressExhausted", "DuplicateAddress", "AttachFailed", "AttachFailed"],
    ],
  );
});
