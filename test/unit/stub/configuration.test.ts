import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConfiguration, readSettings } from "../../../cmd/podnet/configuration.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import { type CniVerb, cniVersions } from "../../../lib/cni/types.ts";

function failsWith(code: number, says: RegExp, work: () => unknown): void {
  assert.throws(work, (error: unknown) => {
    assert.ok(error instanceof CniError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, says);
    return true;
  });
}

const settings = (keys: JsonObject, verb: CniVerb = "ADD") =>
  readSettings({ cniVersion: "1.1.0", name: "net", ...keys }, verb);

test("keys that are absent have their defaults", () => {
  assert.deepEqual(settings({}), {
    cniVersion: "1.1.0",
    daemonSocket: "/run/podnet/podnetd.sock",
    daemonWait: 30,
    daemonWaitDel: 30,
    daemonTimeout: 120,
  });
});

test("the default timeout leaves time for the work after a long wait", () => {
  assert.equal(settings({ daemonWait: 300 }).daemonTimeout, 390);
  assert.equal(settings({ daemonWait: 0 }).daemonTimeout, 90);
  assert.equal(settings({ daemonWait: 10, daemonWaitDel: 20 }).daemonTimeout, 110);
  assert.equal(settings({ daemonWait: 7 }).daemonWaitDel, 7);
});

test("the default wait is not longer than a short timeout", () => {
  assert.equal(settings({ daemonTimeout: 5 }).daemonWait, 5);
});

test("a missing cniVersion is 0.1.0", () => {
  assert.equal(readSettings({ name: "net" }, "ADD").cniVersion, "0.1.0");
  assert.equal(readSettings({ name: "net", cniVersion: "" }, "DEL").cniVersion, "0.1.0");
});

test("each verb is refused below the version that brought it", () => {
  const since: { readonly [verb in CniVerb]?: string } = {
    ADD: "0.1.0",
    DEL: "0.1.0",
    CHECK: "0.4.0",
    STATUS: "1.1.0",
    GC: "1.1.0",
  };
  for (const [verb, first] of Object.entries(since)) {
    for (const cniVersion of cniVersions) {
      const read = () => settings({ cniVersion }, verb as CniVerb);
      if (cniVersion < first) failsWith(1, new RegExp(`run ${verb} with cniVersion`), read);
      else assert.equal(read().cniVersion, cniVersion);
    }
  }
});

test("an unknown cniVersion is refused with code 1, one that is no string with code 6", () => {
  failsWith(1, /cniVersion "2\.0\.0": not supported/, () => settings({ cniVersion: "2.0.0" }));
  failsWith(6, /cniVersion 1: must be a string/, () => settings({ cniVersion: 1 }));
});

const faults: readonly (readonly [keys: JsonObject, says: RegExp])[] = [
  [{ name: "" }, /name: missing/],
  [{ name: 5 }, /name 5: must be a string/],
  [{ name: "a/b" }, /name "a\/b": must start with/],
  [{ daemonSocket: 5 }, /daemonSocket 5: must be an absolute path/],
  [{ daemonSocket: "run/x" }, /daemonSocket "run\/x": must be an absolute path/],
  [{ daemonSocket: "/a\0b" }, /daemonSocket "\/a\\u0000b": must be an absolute path/],
  [{ daemonSocket: `/${"a".repeat(107)}` }, /daemonSocket .*: must not be longer than 107 bytes/],
  [{ daemonWait: "30" }, /daemonWait "30": must be a number of seconds/],
  [{ daemonWait: -1 }, /daemonWait -1: must be/],
  [{ daemonWait: 1e9 }, /daemonWait 1000000000: must be/],
  [{ daemonTimeout: 0 }, /daemonTimeout 0: must be/],
  [{ daemonTimeout: true }, /daemonTimeout true: must be/],
  [
    { daemonWait: 1, daemonWaitDel: 9, daemonTimeout: 5 },
    /daemonTimeout 5: must not be shorter than daemonWaitDel 9/,
  ],
  [{ daemonWait: 10, daemonTimeout: 5 }, /daemonTimeout 5: must not be shorter than daemonWait 10/],
];
for (const [keys, says] of faults) {
  test(`${JSON.stringify(keys).slice(0, 60)} is refused with key and value`, () => {
    failsWith(7, says, () => settings(keys));
  });
}

test("all faults come at once", () => {
  failsWith(7, /name 1: .*; daemonSocket 2: .*; daemonWait \[\]: .*; daemonTimeout "x": /, () =>
    settings({ name: 1, daemonSocket: 2, daemonWait: [], daemonTimeout: "x" }),
  );
});

test("text that is not a JSON object is refused with code 6", () => {
  for (const text of ["", " \n", "{", "[]", "null", "5", '{"a":1} x', "\ufeff{}"]) {
    failsWith(6, /decode the network configuration on stdin/, () => parseConfiguration(text));
  }
});
