import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import type { RunOptions, Tally } from "./report.ts";

/**
 * Runs the files in the virtual machine of test/vm/run-in-vm.sh, in one boot. They are bundled before: JavaScript runs six to ten
 * times slower inside, and stripping types there would cost more than the tests.
 */
export async function runInVm(options: RunOptions): Promise<Tally> {
  const folder = mkdtempSync(join(tmpdir(), "podnet-vm-"));
  try {
    await bundle([...options.files, "test/vm/inside.ts"]);
    const files = options.files.map((file) => join("dist/vm", file.replace(/\.ts$/, ".mjs")));
    const command = [
      "--sriov",
      "--rw",
      folder,
      "--",
      process.execPath,
      "dist/vm/test/vm/inside.mjs",
      folder,
      options.name ?? "",
      ...files,
    ];
    // In CI nothing is skipped inside: there is no further place to go.
    const vm = spawnSync("test/vm/run-in-vm.sh", command, { encoding: "utf8", maxBuffer: 1 << 28 });
    process.stdout.write(vm.stdout);
    const tally = readTally(join(folder, "tally.json"));
    if (vm.status === 0 && tally !== undefined) return tally;
    process.stdout.write(vm.stderr);
    return tally !== undefined && tally.failed > 0 ? tally : { passed: 0, failed: 1, skipped: 0 };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function bundle(files: readonly string[]): Promise<void> {
  await build({
    entryPoints: [...files],
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    outdir: "dist/vm",
    outbase: ".",
    entryNames: "[dir]/[name]",
    outExtension: { ".js": ".mjs" },
    external: ["koffi", "esbuild"],
    sourcemap: "inline",
    logLevel: "warning",
    banner: {
      js: 'import{createRequire as podnetRequire}from"node:module";const require=podnetRequire(import.meta.url);',
    },
  });
}

function readTally(path: string): Tally | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as Tally;
  } catch {
    return undefined;
  }
}
