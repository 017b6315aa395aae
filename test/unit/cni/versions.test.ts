import assert from "node:assert/strict";
import { test } from "node:test";
import { cniVersions } from "../../../lib/cni/types.ts";
import {
  chooseVersion,
  compareVersions,
  isSupportedVersion,
  verbAllowed,
  versionAtLeast,
} from "../../../lib/cni/versions.ts";

test("versions: ordered as the specification published them", () => {
  for (const [index, version] of cniVersions.entries()) {
    assert.equal(compareVersions(version, version), 0);
    for (const older of cniVersions.slice(0, index)) {
      assert.ok(compareVersions(older, version) < 0, `${older} < ${version}`);
      assert.ok(!versionAtLeast(older, version));
      assert.ok(versionAtLeast(version, older));
    }
  }
});

test("versions: what podnet does not speak is not supported", () => {
  for (const text of ["", "1.0", "0.5.0", "1.2.0", "9.9.9", "v1.0.0", "1.0.0 "]) {
    assert.ok(!isSupportedVersion(text), text);
  }
});

const choices: readonly [readonly string[], string | undefined][] = [
  [["1.0.0"], "1.0.0"],
  [["0.4.0", "1.1.0", "1.0.0"], "1.1.0"],
  [["1.0.0", "9.9.9", "2.0.0"], "1.0.0"],
  [["0.5.0", "0.3.1"], "0.3.1"],
  [["9.9.9"], undefined],
  [[], undefined],
];
for (const [offered, chosen] of choices) {
  test(`versions: of [${offered.join(", ")}] ${chosen ?? "none"} is chosen`, () => {
    assert.equal(chooseVersion(offered), chosen);
  });
}

test("versions: verbs that came later need their version", () => {
  const allowed = cniVersions.map((version) => [
    version,
    (["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"] as const)
      .filter((verb) => verbAllowed(verb, version))
      .join(" "),
  ]);
  assert.deepEqual(allowed, [
    ["0.1.0", "ADD DEL VERSION"],
    ["0.2.0", "ADD DEL VERSION"],
    ["0.3.0", "ADD DEL VERSION"],
    ["0.3.1", "ADD DEL VERSION"],
    ["0.4.0", "ADD DEL CHECK VERSION"],
    ["1.0.0", "ADD DEL CHECK VERSION"],
    ["1.1.0", "ADD DEL CHECK STATUS GC VERSION"],
  ]);
});
