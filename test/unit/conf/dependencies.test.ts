import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

// What a person would look for in an audit, at each run: every package is pinned by its hash, says a licence that can be shipped, and runs
// nothing when it is installed.

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly resolved?: string;
  readonly hasInstallScript?: boolean;
  readonly dev?: boolean;
}

const lock = JSON.parse(readFileSync("package-lock.json", "utf8")) as {
  readonly lockfileVersion: number;
  readonly packages: Readonly<Record<string, Locked>>;
};
const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Record<
  string,
  Record<string, string> | undefined
>;
const packages = Object.entries(lock.packages).filter(([path]) => path !== "");

/** Licences without a condition on who links or ships. */
const licences = new Set(
  "MIT Apache-2.0 ISC BSD-2-Clause BSD-3-Clause 0BSD BlueOak-1.0.0 Unlicense PSF-2.0 WTFPL".split(
    " ",
  ),
);
/** Packages that have an install script, which npm is told not to run: what they need comes in packages of its own. */
const withScript = ["esbuild", "koffi", "protobufjs"];

test("every package of the lock file is pinned by a SHA-512 of what is installed", () => {
  assert.ok(packages.length > 100);
  for (const [path, { integrity = "", version = "", resolved = "" }] of packages) {
    assert.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==/, path);
    assert.match(version, /^\d+\.\d+\.\d+/, path);
    assert.doesNotMatch(resolved, /^(git|file|http:)/, path);
  }
});

test("every package has a licence that can be shipped with an Apache-2.0 program", () => {
  for (const [path, { license = "" }] of packages) {
    const choices = license.replaceAll(/[()]/g, "").split(" OR ");
    assert.ok(
      choices.some((one) => one.split(" AND ").every((part) => licences.has(part))),
      `${path}: ${license || "no licence"}`,
    );
  }
});

test("no package runs a script when it is installed", () => {
  assert.match(readFileSync(".npmrc", "utf8"), /^ignore-scripts=true$/m);
  const found = packages
    .filter(([, { hasInstallScript }]) => hasInstallScript === true)
    .map(([path]) => path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length));
  assert.deepEqual(found.toSorted(), withScript);
});

test("what this package asks for is exact", () => {
  for (const kind of ["dependencies", "devDependencies", "optionalDependencies"]) {
    for (const [name, version] of Object.entries(manifest[kind] ?? {})) {
      assert.match(version, /^\d+\.\d+\.\d+$/, `${kind}: ${name}`);
    }
  }
});
