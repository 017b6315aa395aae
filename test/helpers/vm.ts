import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";
import { type RunOptions, type RunTally, sum } from "./report.ts";

/**
 * Runs the files in the virtual machine of test/vm/run-in-vm.sh, in one boot. They are bundled before: JavaScript runs six to ten
 * times slower inside, and stripping types there would cost more than the tests.
 */
export async function runInVm(options: RunOptions): Promise<RunTally> {
  await bundle([...options.files, "test/vm/inside.ts", inProcessChild]);
  const tallies = await Promise.all(
    share(options.files).map((files) => runOneVm({ ...options, files })),
  );
  return { ...sum(tallies), files: Object.assign({}, ...tallies.map(({ files }) => files)) };
}

/** A guest has one slow processor, so two of them share the files: the largest first, each to the guest that has less. */
function share(files: readonly string[]): readonly (readonly string[])[] {
  const guests = [1, 2].map(() => ({ bytes: 0, files: [] as string[] }));
  const sized = files.map((file) => ({ file, bytes: statSync(file).size }));
  for (const { file, bytes } of sized.toSorted((a, b) => b.bytes - a.bytes)) {
    const [least] = guests.toSorted((a, b) => a.bytes - b.bytes);
    least?.files.push(file);
    if (least !== undefined) least.bytes += bytes;
  }
  return guests.map((guest) => guest.files).filter((list) => list.length > 0);
}

async function runOneVm(options: RunOptions): Promise<RunTally> {
  const folder = mkdtempSync(join(tmpdir(), "podnet-vm-"));
  try {
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
    const vm = await start("test/vm/run-in-vm.sh", command);
    process.stdout.write(vm.stdout);
    const tally = readTally(join(folder, "tally.json"));
    if (vm.status === 0 && tally !== undefined) return tally;
    process.stdout.write(vm.stderr);
    if (tally !== undefined && tally.failed > 0) return tally;
    return { passed: 0, failed: 1, skipped: 0, files: {} };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function start(
  program: string,
  args: readonly string[],
): Promise<{ readonly status: number | null; readonly stdout: string; readonly stderr: string }> {
  return new Promise((done, broken) => {
    const child = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, PODNET_IN_PROCESS_CHILD: bundled(inProcessChild) },
    });
    const printed = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => {
        printed[name] += text;
      });
    }
    child.once("error", broken);
    child.once("close", (status) => done({ status, ...printed }));
  });
}

/** Tests start it as a process of its own. */
const inProcessChild = "test/helpers/in-process-child.ts";

function bundled(file: string): string {
  return join("dist/vm", file.replace(/\.ts$/, ".mjs"));
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
    plugins: [keepPlaces],
    logLevel: "warning",
    banner: {
      js: 'import{createRequire as podnetRequire}from"node:module";const require=podnetRequire(import.meta.url);',
    },
  });
}

/** A bundled module still knows where its source is, so files beside it are found. */
const keepPlaces: Plugin = {
  name: "keep-places",
  setup({ onLoad }) {
    onLoad({ filter: /\/(test|lib|daemon|cmd)\/.*\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const places = { dirname: dirname(path), filename: path, url: pathToFileURL(path).href };
      const contents = Object.entries(places).reduce(
        (all, [key, value]) => all.replaceAll(`import.meta.${key}`, JSON.stringify(value)),
        text,
      );
      return { contents, loader: "ts" };
    });
  },
};

function readTally(path: string): RunTally | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as RunTally;
  } catch {
    return undefined;
  }
}
