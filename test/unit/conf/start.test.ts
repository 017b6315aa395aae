import assert from "node:assert/strict";
import { test } from "node:test";
import { build, type Metafile } from "esbuild";

/** What a program loads when it starts: everything that is reached without an import() at run time. */
function loadedAtStart({ inputs }: Metafile, entry: string): Set<string> {
  const found = new Set([entry]);
  for (const file of found) {
    for (const { path, kind } of inputs[file]?.imports ?? [])
      if (kind !== "dynamic-import") found.add(path);
  }
  return found;
}

test("podnetd that starts without a cluster, devices and webhooks loads none of their libraries", async () => {
  const entry = "cmd/podnetd/main.ts";
  const { metafile } = await build({
    entryPoints: [entry],
    bundle: true,
    splitting: true,
    write: false,
    metafile: true,
    platform: "node",
    format: "esm",
    outdir: "dist/lib",
    external: ["koffi"],
    logLevel: "error",
  });
  const loaded = loadedAtStart(metafile, entry);
  assert.ok(loaded.has("daemon/node/add.ts"));
  // Each costs a tenth of a second and some megabytes at every start.
  const heavy = /node_modules\/(undici|@grpc|@peculiar|@kubernetes|reflect-metadata)\//;
  assert.deepEqual(
    [...loaded].filter((file) => heavy.test(file)),
    [],
  );
});
