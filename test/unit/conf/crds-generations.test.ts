import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";

// Objects that a cluster has are read by the next release, and those of the next release by this one: within a version, a schema only widens.

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
  readonly enum?: readonly unknown[];
  readonly maxLength?: number;
  readonly minLength?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
  readonly "x-kubernetes-validations"?: readonly { readonly rule: string }[];
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
  readonly [other: string]: unknown;
}

interface Version {
  readonly name: string;
  readonly served: boolean;
  readonly storage: boolean;
  readonly schema: { readonly openAPIV3Schema: Schema };
}

interface Crd {
  readonly spec: {
    readonly names: object;
    readonly scope: string;
    readonly versions: readonly Version[];
  };
}

const folder = "test/fixtures/generations";
const readCrd = (path: string) => parse(readFileSync(path, "utf8")) as Crd;

for (const generation of readdirSync(folder).filter((name) => name.startsWith("crds-"))) {
  for (const file of readdirSync(join(folder, generation))) {
    test(`${file} takes every object that it took in ${generation}`, () => {
      const before = readCrd(join(folder, generation, file)).spec;
      const now = readCrd(join("conf/crds", file)).spec;
      assert.deepEqual(now.names, before.names);
      assert.equal(now.scope, before.scope);
      for (const version of before.versions) {
        const same = now.versions.find(({ name }) => name === version.name);
        assert.ok(same?.served === true || !version.served, `${version.name} is served no more`);
        assert.equal(same?.storage, version.storage);
        const faults = narrowed(version.schema.openAPIV3Schema, same.schema.openAPIV3Schema, "");
        assert.deepEqual(faults, []);
      }
    });
  }
}

/** Where the later schema refuses or drops what the earlier one takes. */
function narrowed(before: Schema, now: Schema | undefined, at: string): string[] {
  if (now === undefined) return [`${at} is gone`];
  return [...limits(before, now, at), ...inside(before, now, at)];
}

function limits(before: Schema, now: Schema, at: string): string[] {
  const faults: string[] = [];
  const say = (wrong: boolean, what: string) => {
    if (wrong) faults.push(`${at}: ${what}`);
  };
  const rules = (schema: Schema) =>
    (schema["x-kubernetes-validations"] ?? []).map(({ rule }) => rule);
  const unknown = "x-kubernetes-preserve-unknown-fields";
  say(before.type !== now.type, "another type");
  say(before.pattern !== now.pattern && now.pattern !== undefined, "another pattern");
  say(before[unknown] === true && now[unknown] !== true, "unknown fields are dropped");
  say(
    (now.required ?? []).some((key) => !before.required?.includes(key)),
    "more is required",
  );
  say(
    rules(now).some((rule) => !rules(before).includes(rule)),
    "another rule",
  );
  say(
    now.enum !== undefined && !before.enum?.every((one) => now.enum?.includes(one)),
    "fewer values",
  );
  for (const key of ["maxLength", "maxItems"] as const)
    say(
      (now[key] ?? Number.POSITIVE_INFINITY) < (before[key] ?? Number.POSITIVE_INFINITY),
      `less ${key}`,
    );
  say((now.minLength ?? 0) > (before.minLength ?? 0), "more minLength");
  return faults;
}

function inside(before: Schema, now: Schema, at: string): string[] {
  const properties = Object.entries(before.properties ?? {}).flatMap(([key, schema]) =>
    narrowed(schema, now.properties?.[key], `${at}.${key}`),
  );
  const items = before.items === undefined ? [] : narrowed(before.items, now.items, `${at}[]`);
  const { additionalProperties: values } = before;
  if (typeof values !== "object") return [...properties, ...items];
  const later = typeof now.additionalProperties === "object" ? now.additionalProperties : undefined;
  return [...properties, ...items, ...narrowed(values, later, `${at}{}`)];
}
