import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { DecodeError, decode } from "../../../lib/base/decode.ts";

const schema = z.object({
  mtu: z.number().int().max(9000),
  name: z.string().min(2),
  mode: z.enum(["l2", "l3"]),
  hosts: z.array(z.string()).min(1),
  on: z.boolean(),
  tuned: z.strictObject({}),
  own: z.number("must be seconds"),
});

/** The faults of a value in which one key is replaced. */
function faults(change: Record<string, unknown>): readonly string[] {
  const fine = { mtu: 1500, name: "eth", mode: "l2", hosts: ["a"], on: true, tuned: {}, own: 1 };
  try {
    decode(schema, { ...fine, ...change }, "thing");
    return [];
  } catch (error) {
    assert.ok(error instanceof DecodeError);
    return error.faults.map(({ path, message }) => `${path}: ${message}`);
  }
}

const cases: readonly (readonly [Record<string, unknown>, string])[] = [
  [{ mtu: "lots" }, "mtu: must be a number, not a text"],
  [{ mtu: 1.5 }, "mtu: must be a whole number"],
  [{ mtu: 9001 }, "mtu: must be at most 9000"],
  [{ mtu: undefined }, "mtu: missing"],
  [{ name: 5 }, "name: must be a text, not a number"],
  [{ name: "a" }, "name: must have at least 2 characters"],
  [{ mode: "l4" }, 'mode: must be "l2" or "l3"'],
  [{ hosts: {} }, "hosts: must be a list, not an object"],
  [{ hosts: [] }, "hosts: must not be empty"],
  [{ hosts: [null] }, "hosts[0]: must be a text, not null"],
  [{ on: "yes" }, "on: must be true or false, not a text"],
  [{ tuned: { a: 1, b: 2 } }, 'tuned: unknown key "a", "b"'],
  [{ own: "x" }, "own: must be seconds"],
];

for (const [change, text] of cases) {
  test(`decode ${JSON.stringify(change)}: says "${text}"`, () => {
    assert.deepEqual(faults(change), [text]);
  });
}

test("decode names the value and all its faults in one line", () => {
  assert.throws(() => decode(schema, null, "thing"), {
    message: "decode thing: must be an object, not null",
  });
  assert.equal(faults({ mtu: "x", on: 1 }).length, 2);
});
