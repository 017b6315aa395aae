import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { decodePodNetwork } from "../../../lib/api/decode-objects.ts";
import { apiGroup, kinds } from "../../../lib/api/names.ts";
import { podNetworkAttachmentSchema, podNetworkSchema } from "../../../lib/api/object-schema.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";

const folder = "conf/crds";

function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>(
    (inner, key) =>
      typeof inner === "object" && inner !== null ? Reflect.get(inner, key) : undefined,
    value,
  );
}

function crd(file: string): unknown {
  return parse(readFileSync(join(folder, file), "utf8"));
}

function schemaOf(file: string): unknown {
  return at(crd(file), "spec", "versions", 0, "schema", "openAPIV3Schema");
}

test("conf/crds/legacy is what its script writes", () => {
  const made = mkdtempSync(join(tmpdir(), "podnet-test-"));
  try {
    execFileSync(process.execPath, [join(folder, "legacy.mjs"), made]);
    const names = readdirSync(made);
    assert.deepEqual(names.toSorted(), readdirSync(join(folder, "legacy")).toSorted());
    for (const name of names) {
      const kept = readFileSync(join(folder, "legacy", name), "utf8");
      assert.equal(readFileSync(join(made, name), "utf8"), kept, name);
      assert.doesNotMatch(kept, /x-kubernetes-validations|oldSelf/, name);
    }
  } finally {
    rmSync(made, { recursive: true });
  }
});

test("the schema of a PodNetwork's spec has the keys that podnet reads, and a rule for each but enabled", () => {
  const spec = at(schemaOf("podnetworks.yaml"), "properties", "spec");
  const keys = Object.keys(at(spec, "properties") ?? {});
  assert.deepEqual(keys.toSorted(), Object.keys(podNetworkSchema.shape.spec.shape).toSorted());
  const rules = JSON.stringify(at(spec, "x-kubernetes-validations"));
  for (const key of keys) {
    assert.equal(rules.includes(`has(self.${key})`), key !== "enabled", key);
  }
});

test("the schema of a PodNetworkAttachment's spec has the keys that podnet reads", () => {
  const spec = at(schemaOf("podnetworkattachments.yaml"), "properties", "spec");
  const keys = Object.keys(at(spec, "properties") ?? {});
  const known = Object.keys(podNetworkAttachmentSchema.shape.spec.shape);
  assert.deepEqual(keys.toSorted(), known.toSorted());
});

/** Paths of a schema and of everything inside; not of parameters, whose keys are plugins' own. */
function walk(schema: unknown, path: string): [string, JsonObject][] {
  assert.ok(isJsonObject(schema), path);
  const { properties, items } = schema;
  const known = isJsonObject(properties) && path !== "root.spec.parameters" ? properties : {};
  return [
    [path, schema],
    ...Object.entries(known).flatMap(([name, inner]) => walk(inner, `${path}.${name}`)),
    ...(items === undefined ? [] : walk(items, `${path}[]`)),
  ];
}

test("every object of the schemas is described and has a type", () => {
  for (const file of ["podnetworks.yaml", "podnetworkattachments.yaml"]) {
    for (const [path, { type, description }] of walk(schemaOf(file), "root")) {
      assert.equal(typeof type, "string", `${path}: type`);
      const meta = /^(root\.(apiVersion|kind|metadata)|.*\[\])$/.test(path);
      assert.ok(meta || typeof description === "string", `${path}: description`);
    }
  }
});

test("the pattern of spec.provider takes what the decoder takes", () => {
  const pattern = at(
    schemaOf("podnetworks.yaml"),
    ...["properties", "spec", "properties", "provider", "pattern"],
  );
  const matches = (text: string) => new RegExp(String(pattern)).test(text);
  const decodes = (provider: string) => {
    try {
      decodePodNetwork({
        apiVersion: `${apiGroup}/v1alpha1`,
        kind: kinds.podNetwork,
        metadata: { name: "x" },
        spec: { provider },
      });
      return true;
    } catch {
      return false;
    }
  };
  const providers = [
    "acme.io/foo",
    "acme/foo",
    "acme.io/a/b:c",
    "acme.io",
    "a.b-c.d",
    "podnet.dev/cni",
  ];
  const faulty = [
    "acme",
    "ACME.io/x",
    "http://acme.io/x",
    "",
    "acme.io/",
    "-a.io/x",
    "a..b/x",
    "acme.io/ x",
  ];
  for (const text of [...providers, ...faulty]) {
    assert.equal(matches(text), providers.includes(text), `pattern: ${text}`);
    assert.equal(decodes(text), providers.includes(text), `decoder: ${text}`);
  }
});

test("kubectl get shows READY, PROVIDER, TYPE, IN USE and AGE of a PodNetwork, master and subnet when wide", () => {
  const columns = at(crd("podnetworks.yaml"), "spec", "versions", 0, "additionalPrinterColumns");
  assert.ok(Array.isArray(columns));
  const named = (priority: number) =>
    columns
      .filter((column) => (at(column, "priority") ?? 0) === priority)
      .map((column) => String(at(column, "name")).toUpperCase());
  assert.deepEqual(named(0), ["READY", "PROVIDER", "TYPE", "IN USE", "AGE"]);
  assert.deepEqual(named(1), ["MASTER", "SUBNET"]);
});

test("the schema of parameters names the keys of podnet's own types, which its rule compares", () => {
  const path = ["properties", "spec", "properties", "parameters", "properties"];
  const properties = at(schemaOf("podnetworks.yaml"), ...path);
  assert.ok(isJsonObject(properties));
  for (const key of ["type", "plugins", "ipam", "bridge", "master", "vlanId", "device", "sysctl"])
    assert.deepEqual(properties[key], { "x-kubernetes-preserve-unknown-fields": true }, key);
});
