// Runs tiers of tests: node test/run.ts TIER... [-- PART_OF_A_PATH...] [--name PATTERN]
// Quiet unless something fails. Ends with one line that sums all tiers. What a tier lacks skips it with a reason on a developer's
// machine and fails it where CI=true, where a tier that found no test fails too.
import { spawnSync } from "node:child_process";
import { appendFileSync, existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { sweepNamespaces } from "./helpers/lab.ts";
import { part } from "./helpers/parts.ts";
import { type RunOptions, type RunTally, runFiles, sum, type Tally } from "./helpers/report.ts";
import { runInVm } from "./helpers/vm.ts";
import { type Need, type Tier, tiers } from "./tiers.ts";

const ci = process.env["CI"] === "true";

function lacks(need: Need): string | undefined {
  const found = (program: string) =>
    spawnSync(program, ["-V"], { stdio: "ignore" }).error === undefined;
  switch (need) {
    case "root":
      return process.getuid?.() === 0 && spawnSync("unshare", ["-n", "-m", "true"]).status === 0
        ? undefined
        : "needs root, allowed to make namespaces";
    case "ip":
      return found("ip") ? undefined : "needs ip (Debian package iproute2)";
    case "nft":
      return found("nft") ? undefined : "needs nft (Debian package nftables)";
    case "build":
      return existsSync("dist/bin/podnet") ? undefined : "needs `make build` first";
  }
}

function fetchParts(tier: Tier): string | undefined {
  try {
    for (const one of tier.parts ?? []) {
      if (typeof one === "string") part(one);
      else part(...one);
    }
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function chosenFiles(tier: Tier, parts: readonly string[]): readonly string[] {
  const files = tier.files();
  return parts.length === 0
    ? files
    : files.filter((file) => parts.some((one) => file.includes(one)));
}

/** Why the tier can't run here. */
function whyIdle(tier: Tier, isEmpty: boolean): string | undefined {
  if (isEmpty) return "has no test files";
  return tier.needs.map(lacks).find((reason) => reason !== undefined) ?? fetchParts(tier);
}

async function runTier(
  tier: Tier,
  parts: readonly string[],
  name: string | undefined,
): Promise<Tally> {
  const started = performance.now();
  const files = chosenFiles(tier, parts);
  const idle = whyIdle(tier, files.length === 0 && parts.length === 0);
  if (idle !== undefined) {
    process.stdout.write(`${tier.name}: ${ci ? "FAILED" : "skipped"}: ${idle}\n`);
    return { passed: 0, failed: ci ? 1 : 0, skipped: ci ? 0 : 1 };
  }
  if (tier.name === "fuzz") shareFuzzTime(files.length, tier.concurrency);
  const options = { files, concurrency: tier.concurrency, name, ci };
  const run = tier.vm ? runInVm : runFiles;
  const tally = await again(await run(options), run, options);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  process.stdout.write(
    `${tier.name}: ${tally.passed} passed, ${tally.failed} failed, ${tally.skipped} skipped (${seconds} s)\n`,
  );
  return tally;
}

/**
 * In CI a file that failed is run once more, alone: machines are shared, and what passes alone was upset by its neighbours. It is
 * named, so that somebody makes it bear them; what fails twice has failed.
 */
async function again(
  first: RunTally,
  run: (options: RunOptions) => Promise<RunTally>,
  options: RunOptions,
): Promise<Tally> {
  const failed = options.files.filter((file) => (first.files[file]?.failed ?? 0) > 0);
  const elsewhere = Object.entries(first.files).some(
    ([file, { failed: count }]) => count > 0 && !failed.includes(file),
  );
  if (!ci || failed.length === 0 || failed.length > 8 || elsewhere) return first;
  const second = await run({ ...options, files: failed, concurrency: 1 });
  const others = Object.entries(first.files).filter(([file]) => !failed.includes(file));
  for (const file of failed) {
    if (second.files[file]?.failed === 0) process.stdout.write(`UNSTABLE ${file}: passed alone\n`);
  }
  return sum([second, ...others.map(([, tally]) => tally)]);
}

/** FUZZ_SECONDS is the time of the whole tier. */
function shareFuzzTime(files: number, concurrency: number): void {
  const seconds = Number(process.env["FUZZ_SECONDS"] ?? (ci ? 60 : 10));
  process.env["PODNET_FUZZ_FILE_MS"] = String(
    Math.ceil((seconds * 1000 * concurrency) / Math.max(files, concurrency)),
  );
  process.env["FUZZ_SEED"] ??= String(Date.now() % 1_000_000_007);
  process.stdout.write(`fuzz: ${seconds} s, FUZZ_SEED=${process.env["FUZZ_SEED"]}\n`);
}

async function main(): Promise<number> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { name: { type: "string" } },
  });
  const names = positionals.filter((word) => tiers.some((tier) => tier.name === word));
  const parts = positionals.filter((word) => !names.includes(word));
  // Tests look at their environment: what is meant for this program stays here.
  const report = process.env["PODNET_TEST_REPORT"];
  delete process.env["PODNET_TEST_REPORT"];
  const tallies: Tally[] = [];
  sweepNamespaces();
  for (const tier of tiers.filter((one) => names.includes(one.name))) {
    tallies.push(await runTier(tier, parts, values.name));
  }
  const total = sum(tallies);
  if (total.passed + total.failed + total.skipped === 0) {
    process.stderr.write(
      `run: nothing ran: name a tier (${tiers.map((tier) => tier.name).join(", ")}) and, after it, a part of a path\n`,
    );
    return 2;
  }
  process.stdout.write(
    `${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`,
  );
  // Where one script runs several tiers in turn it sums them from here.
  if (report !== undefined)
    appendFileSync(report, `${total.passed} ${total.failed} ${total.skipped}\n`);
  return total.failed === 0 ? 0 : 1;
}

process.exitCode = await main();
