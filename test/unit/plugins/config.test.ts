import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { decodeConfig } from "../../../daemon/plugins/shared/config.ts";
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
