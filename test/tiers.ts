import { globSync, readFileSync } from "node:fs";
import type { PartName } from "./helpers/parts.ts";

/** What a tier must find on the machine. `root` covers making namespaces and mounts. */
export type Need = "root" | "ip" | "nft" | "build";

/** A real part, with arguments of its script where it takes some. */
type Part = PartName | readonly [name: PartName, ...args: string[]];

/** One kind of test, by where it runs and what it needs. */
export interface Tier {
  readonly name: string;
  readonly files: () => readonly string[];
  readonly needs: readonly Need[];
  /** Fetched before the first test: some tests have left the machine's network when they ask for one. */
  readonly parts?: readonly Part[];
  /** Test files that run side by side. */
  readonly concurrency: number;
  /** Runs inside the virtual machine. */
  readonly vm?: true;
}

const glob = (pattern: string) => () => globSync(pattern).toSorted();
const plugins: readonly Part[] = ["reference-plugins"];
const runtimes: readonly Part[] = [
  "reference-plugins",
  "cnitool",
  ["containerd", "bookworm"],
  ["containerd", "trixie"],
  "cri-proto",
  "podman",
];
const kernel: readonly Need[] = ["root", "ip", "nft", "build"];

const tests = (folder: string) => glob(`${folder}/**/*.test.ts`);

export const tiers: readonly Tier[] = [
  { name: "unit", files: tests("test/unit"), needs: [], concurrency: 2 },
  { name: "kernel", files: tests("test/kernel"), needs: kernel, parts: plugins, concurrency: 2 },
  { name: "vm", files: vmFiles, needs: ["root"], parts: plugins, concurrency: 1, vm: true },
  {
    name: "conformance",
    files: tests("test/conformance"),
    needs: kernel,
    parts: plugins,
    concurrency: 2,
  },
  {
    name: "runtime",
    files: glob("test/e2e/*.test.ts"),
    needs: kernel,
    parts: runtimes,
    concurrency: 1,
  },
  // Not part of 'make test': the first run builds Kubernetes, for minutes.
  { name: "e2e", files: glob("test/e2e/kube/*.test.ts"), needs: kernel, concurrency: 2 },
  // A whole cluster on one machine: its deadlines need a machine that nobody else uses.
  { name: "cluster", files: tests("test/e2e/kube/cluster"), needs: kernel, concurrency: 1 },
  // Not part of 'make test' either: minutes, of which FAULTS_SECONDS are drawn cases.
  { name: "faults", files: tests("test/faults"), needs: kernel, parts: plugins, concurrency: 1 },
  { name: "fuzz", files: tests("test/fuzz"), needs: [], concurrency: 2 },
];

/** The virtual machine's own cases, and the kernel tests that skip what this kernel lacks: they run whole there. */
function vmFiles(): readonly string[] {
  const borrowed = globSync("test/kernel/**/*.test.ts").filter((file) =>
    readFileSync(file, "utf8").includes("needsDriver("),
  );
  return [...globSync("test/vm/cases/**/*.test.ts"), ...borrowed].toSorted();
}
