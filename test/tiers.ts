import { globSync, readFileSync } from "node:fs";

/** What a tier must find on the machine. `root` covers making namespaces and mounts. */
export type Need = "root" | "ip" | "nft" | "build";

/** One kind of test, by where it runs and what it needs. */
export interface Tier {
  readonly name: string;
  readonly files: () => readonly string[];
  readonly needs: readonly Need[];
  /** Test files that run side by side. */
  readonly concurrency: number;
  /** Runs inside the virtual machine. */
  readonly vm?: true;
}

const glob = (pattern: string) => () => globSync(pattern).toSorted();
const kernel: readonly Need[] = ["root", "ip", "nft", "build"];

export const tiers: readonly Tier[] = [
  { name: "unit", files: glob("test/unit/**/*.test.ts"), needs: [], concurrency: 2 },
  { name: "kernel", files: glob("test/kernel/**/*.test.ts"), needs: kernel, concurrency: 2 },
  { name: "vm", files: vmFiles, needs: ["root"], concurrency: 1, vm: true },
  {
    name: "conformance",
    files: glob("test/conformance/**/*.test.ts"),
    needs: kernel,
    concurrency: 2,
  },
  { name: "runtime", files: glob("test/e2e/*.test.ts"), needs: kernel, concurrency: 1 },
  { name: "fuzz", files: glob("test/fuzz/**/*.test.ts"), needs: [], concurrency: 2 },
];

/** The virtual machine's own cases, and the kernel tests that skip what this kernel lacks: they run whole there. */
function vmFiles(): readonly string[] {
  const borrowed = globSync("test/kernel/**/*.test.ts").filter((file) =>
    readFileSync(file, "utf8").includes("needsDriver("),
  );
  return [...globSync("test/vm/cases/**/*.test.ts"), ...borrowed].toSorted();
}
