import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { test } from "node:test";
import type { JsonObject } from "../../../lib/base/json.ts";
import { needsDriver } from "../../helpers/needs.ts";
import type { Snapshot } from "./snapshot.ts";
import { type Case, perform } from "./world.ts";

/** A difference between podnet and the reference that is meant, from known-differences.txt. */
interface Known {
  readonly line: string;
  readonly item: RegExp;
  readonly path: RegExp;
  seen: boolean;
}

/** Lines `CASE  PATH  # reason`, both with `*` for any text, of the cases whose name begins with the prefix. */
function readKnown(prefix: string): Known[] {
  const text = readFileSync(resolve("test/conformance/known-differences.txt"), "utf8");
  return text.split("\n").flatMap((line): Known[] => {
    if (line.trim() === "" || line.startsWith("#")) return [];
    const [pattern = "", reason = ""] = line.split("#");
    const [item = "", path = ""] = pattern.trim().split(/\s{2,}/);
    assert.notEqual(reason.trim(), "", `known-differences.txt: no reason: ${line}`);
    return item.startsWith(prefix)
      ? [{ line, item: glob(item), path: glob(path), seen: false }]
      : [];
  });
}

function glob(pattern: string): RegExp {
  const parts = pattern.split("*").map((part) => part.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`);
}

/** Every path that the two do not agree on, with both values. */
function differences(reference: Snapshot, podnet: Snapshot): [path: string, text: string][] {
  const paths = new Set([...reference.keys(), ...podnet.keys()]);
  return [...paths].toSorted().flatMap((path): [string, string][] => {
    const [left, right] = [reference.get(path), podnet.get(path)];
    return left === right || path.endsWith(".error")
      ? []
      : [[path, `${path}: reference ${left ?? "nothing"}, podnet ${right ?? "nothing"}`]];
  });
}

/** What the calls that failed said. */
function errors(who: string, of: Snapshot): string {
  const texts = [...of].filter(([path]) => path.endsWith(".error"));
  return `${who}: ${texts.map(([path, text]) => `${path}: ${text}`).join("; ") || "no error"}`;
}

/** The configuration without one key; CNI_ARGS keys are taken out of the text. */
function without(item: Case, key: string): Case {
  if (key.startsWith("CNI_ARGS.")) {
    const name = key.slice("CNI_ARGS.".length);
    const rest = (item.args ?? "").split(";").filter((pair) => !pair.startsWith(`${name}=`));
    return { ...item, args: rest.join(";") };
  }
  return { ...item, config: drop(item.config, key.split(".")) as JsonObject };
}

function drop(value: unknown, [key = "", ...rest]: readonly string[]): unknown {
  if (Array.isArray(value)) return value.map((inner) => drop(inner, [key, ...rest]));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]) => {
      if (name !== key) return [[name, inner]];
      return rest.length === 0 ? [] : [[name, drop(inner, rest)]];
    }),
  );
}

/** The keys that must have cases. */
export interface KeyList {
  readonly keys: readonly string[];
  /** Those of them whose good values have no effect that could be seen, with the reason beside the list. */
  readonly badOnly?: readonly string[];
  /** Those of them without which nothing works: that a bad value is ignored looks like its refusal. */
  readonly required?: readonly string[];
}

/**
 * The tests of a list of cases: podnet leaves what the reference leaves after every call and gives the same result; with a key of the case taken
 * from podnet's configuration it no longer does; each of `keys` has a case that works and one that fails; no known difference is out of date.
 */
export function compareWithReference(
  prefix: string,
  cases: readonly Case[],
  { keys, badOnly = [], required = [] }: KeyList,
): void {
  const known = readKnown(prefix);
  const unexpected = (item: Case, found: [string, string][]) =>
    found.filter(([path]) => {
      const matches = known.filter(
        (entry) => entry.item.test(`${prefix}${item.name}`) && entry.path.test(path),
      );
      for (const entry of matches) entry.seen = true;
      return matches.length === 0;
    });
  const droppable = ({ outcome, keys: own }: Case) =>
    own.filter((key) => outcome === "works" || !required.includes(key));
  let skipped = false;
  for (const item of cases) {
    const skip = item.driver === undefined ? false : needsDriver(item.driver);
    skipped ||= skip !== false;
    test(`${prefix}${item.name}: podnet does what the reference does`, { skip }, async () => {
      const reference = await perform("reference", item);
      const first = [...reference.keys()].find((path) => path.endsWith(" ADD.status")) ?? "";
      const expected = item.outcome === "works" ? "0" : "1";
      const reason = reference.get(first.replace(/status$/, "error"));
      assert.equal(reference.get(first), expected, `the reference's ADD: ${reason ?? "no error"}`);
      const podnet = await perform("podnet", item);
      const found = unexpected(item, differences(reference, podnet)).map(([, text]) => text);
      assert.deepEqual(
        found,
        [],
        `podnet differs; ${errors("reference", reference)}; ${errors("podnet", podnet)}`,
      );
      for (const key of droppable(item)) {
        const crippled = without(item, key);
        assert.notDeepEqual(crippled, item, `the case has no key "${key}"`);
        const broken = unexpected(item, differences(reference, await perform("podnet", crippled)));
        assert.notEqual(broken.length, 0, `nobody notices when "${key}" is ignored`);
      }
    });
  }
  test(`${prefix}each key has a case that notices when it is ignored, for a good and for a bad value`, () => {
    const covered = (outcome: Case["outcome"]) =>
      new Set(cases.filter((item) => item.outcome === outcome).flatMap((item) => item.keys));
    const good = keys.filter((key) => !badOnly.includes(key));
    assert.deepEqual(
      good.filter((key) => !covered("works").has(key)),
      [],
    );
    assert.deepEqual(
      keys.filter((key) => !covered("fails").has(key)),
      [],
    );
  });
  // The last test of its file, so that all cases have run.
  test(`${prefix}known differences all still occur`, () => {
    if (skipped) return;
    const stale = known.filter(({ seen }) => !seen).map(({ line }) => line);
    assert.deepEqual(stale, [], "known differences that no longer occur");
  });
}
