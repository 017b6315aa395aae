import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { decodeConfig, ipField } from "../../../daemon/plugins/shared/config.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const where = { network: "blue", plugin: "bridge" };

test("decodeConfig, the same object and schema, decodes once; another object or schema, anew", () => {
  let times = 0;
  const schema = z.object({ mtu: z.int() }).transform(({ mtu }) => ({ mtu, times: ++times }));
  const config = { mtu: 1400 };
  assert.deepEqual(decodeConfig(schema, config, where), { mtu: 1400, times: 1 });
  assert.deepEqual(decodeConfig(schema, config, where), { mtu: 1400, times: 1 });
  assert.deepEqual(decodeConfig(schema, { mtu: 1400 }, where), { mtu: 1400, times: 2 });
  assert.deepEqual(decodeConfig(z.object({}), config, where), {});
});

test("decodeConfig, a wrong object, is refused each time with the network of the call", () => {
  const schema = z.object({ mtu: z.int() });
  const config = { mtu: "x" };
  for (const network of ["blue", "red"]) {
    assert.throws(
      () => decodeConfig(schema, config, { ...where, network }),
      (error) =>
        error instanceof CniError &&
        error.code === 7 &&
        error.message.includes(`"${network}": mtu: `),
    );
  }
});

test("decodeConfig, a wrong value, is quoted in a short form on one line, once; an absent one is not", () => {
  const long = "x".repeat(500);
  const cases: readonly (readonly [z.ZodType, unknown, string])[] = [
    [z.int().max(9, { error: "must be 0 to 9" }), 10, "must be 0 to 9 (given: 10)"],
    [z.boolean(), "yes", 'must be true or false, not a text (given: "yes")'],
    [z.enum(["on", "off"]), "up", 'must be "on" or "off" (given: "up")'],
    [z.int(), { a: [1] }, 'must be a number, not an object (given: {"a":[1]})'],
    [z.int(), "a\nb\u0085", '(given: "a\\nb\\u0085")'],
    [z.int(), long, `(given: "${"x".repeat(62)}…)`],
    [z.int(), undefined, "missing"],
    [ipField, "10.0.0", '"10.0.0" is not an IP address'],
  ];
  for (const [schema, value, says] of cases) {
    assert.throws(
      () => decodeConfig(z.object({ list: z.array(schema) }), { list: [value] }, where),
      ({ message }: Error) => {
        assert(message.startsWith('decode bridge configuration of network "blue": list[0]: '));
        assert(message.endsWith(says), message);
        assert.equal(message.includes("\n"), false);
        return true;
      },
    );
  }
});
