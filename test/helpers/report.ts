import { relative, resolve } from "node:path";
import { run } from "node:test";
import { inspect } from "node:util";

/** Counts of tests; suites are not counted. */
export interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
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

const perFileMs = 600_000;

/** Runs the files, a process each, and prints only what failed, with what those files printed. */
export async function runFiles(options: RunOptions): Promise<Tally> {
  const tally = { passed: 0, failed: 0, skipped: 0 };
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
    tally.failed += 1;
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
      tally.passed += 1;
      return;
    }
    const reason = String(event.skip ?? event.todo);
    if (options.ci && !reason.startsWith(elsewhere))
      report(event.name, event.file, `  skipped in CI: ${reason}`);
    else tally.skipped += 1;
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
  return tally;
}
