import { relative, resolve } from "node:path";
import { run } from "node:test";
import { inspect } from "node:util";

/** Counts of tests; suites are not counted. */
export interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** The counts of a run, and of each file by its path from the project's root. */
export interface RunTally extends Tally {
  readonly files: Readonly<Record<string, Tally>>;
}

/** The sum of what several runs or files counted. */
export function sum(tallies: readonly Tally[]): Tally {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const { passed, failed, skipped } of tallies) {
    total.passed += passed;
    total.failed += failed;
    total.skipped += skipped;
  }
  return total;
}

export interface RunOptions {
  readonly files: readonly string[];
  readonly concurrency: number;
  /** A regular expression: only tests whose name matches it. */
  readonly name?: string | undefined;
  /** A skip that no other place makes good for is a failure. */
  readonly ci: boolean;
}

/** A reason that begins like this names the place where the test does run, so the skip loses nothing. */
export const elsewhere = "runs in the VM: ";

/** FAULTS=all takes hours. */
const perFileMs = process.env["FAULTS"] === "all" ? Number.POSITIVE_INFINITY : 600_000;

/** Runs the files, a process each, and prints only what failed, with what those files printed. */
export async function runFiles(options: RunOptions): Promise<RunTally> {
  const files: Record<string, { passed: number; failed: number; skipped: number }> = {};
  const count = (file: string | undefined, what: keyof Tally) => {
    const key = file === undefined ? "" : relative(process.cwd(), resolve(file));
    files[key] ??= { passed: 0, failed: 0, skipped: 0 };
    files[key][what] += 1;
  };
  const output = new Map<string, string>();
  const failed = new Set<string>();
  const keep = (file: string | undefined, text: string) => {
    // The runner names a file as it was given in some events and by its absolute path in others.
    const key = file === undefined ? undefined : resolve(file);
    if (key !== undefined) output.set(key, ((output.get(key) ?? "") + text).slice(-20_000));
  };
  const report = (title: string, file: string | undefined, text: string) => {
    process.stdout.write(
      `FAILED ${file === undefined ? "" : `${relative(process.cwd(), file)}: `}${title}\n${text}\n`,
    );
    count(file, "failed");
    if (file !== undefined) failed.add(resolve(file));
  };
  const stream = run({
    files: [...options.files],
    concurrency: options.concurrency,
    timeout: perFileMs,
    ...(options.name === undefined ? {} : { testNamePatterns: [new RegExp(options.name)] }),
  });
  stream.on("test:stdout", (event) => keep(event.file, event.message));
  stream.on("test:stderr", (event) => keep(event.file, event.message));
  stream.on("test:pass", (event) => {
    if (event.details.type === "suite") return;
    if (event.skip === undefined && event.todo === undefined) {
      count(event.file, "passed");
      return;
    }
    const reason = String(event.skip ?? event.todo);
    if (options.ci && !reason.startsWith(elsewhere))
      report(event.name, event.file, `  skipped in CI: ${reason}`);
    else count(event.file, "skipped");
  });
  stream.on("test:fail", (event) => {
    const error = event.details.error as Error & { failureType?: string };
    if (event.details.type === "suite" && error.failureType === "subtestsFailed") return;
    report(
      event.name,
      event.file,
      inspect(error.cause ?? error, { depth: 6 }).replace(/^/gm, "  "),
    );
  });
  await new Promise((done, broken) => {
    stream.on("end", done).on("error", broken).resume();
  });
  for (const file of failed) {
    const text = output.get(file)?.trim();
    if (text)
      process.stdout.write(`--- printed by ${relative(process.cwd(), file)}\n${text}\n---\n`);
  }
  return { ...sum(Object.values(files)), files };
}
