import { errorText } from "../../lib/base/errors.ts";
import { CniError } from "../../lib/cni/errors.ts";
import type { Sandbox } from "../plugins/plugin.ts";
import { detach } from "./attachment.ts";
import type { NodeContext } from "./context.ts";
import { asFailure } from "./failure.ts";
import { endInheritance } from "./multus/cache-end.ts";
import type { AttachmentRecord, SandboxRecord } from "./record.ts";
import { inRuns } from "./runs.ts";

/** What giving back a sandbox works with: the record alone says what there is. */
export interface UndoWork {
  readonly node: NodeContext;
  readonly record: SandboxRecord;
  /** undefined when the namespace is gone. */
  readonly sandbox: Sandbox | undefined;
  readonly signal: AbortSignal;
}

/**
 * Gives back everything that a record stands for, last attachment first, each of them tried, and removes the record when nothing is
 * left. Until then the record stays, in phase `deleting` with the reason, and the daemon tries again by itself. Idempotent.
 * Rejects with one CniError that names each network that could not be detached.
 */
export async function giveBack(work: UndoWork): Promise<void> {
  const { node, record } = work;
  if (record.phase !== "deleting") {
    note(node, record, { phase: "deleting", deleting: new Date().toISOString() });
  }
  const faults: unknown[] = [];
  for (const run of runsOf(record)) {
    const outcomes = await Promise.allSettled(
      run.map((attachment) => detach({ ...work, attachment })),
    );
    for (const outcome of outcomes) if (outcome.status === "rejected") faults.push(outcome.reason);
  }
  if (faults.length === 0) {
    endInheritance(node, record);
    node.store.remove(record);
    return;
  }
  const failure = combine(faults);
  if (record.fault !== failure.message) note(node, record, { fault: failure.message });
  node.notices.pending(record, failure);
  throw failure;
}

/** What executables of others made is undone as they did it: one after the other. */
function runsOf({ attachments, inherited }: SandboxRecord): readonly AttachmentRecord[][] {
  const backwards = attachments.toReversed();
  return inherited === undefined ? inRuns(backwards) : backwards.map((one) => [one]);
}

/** Writes what became of a record. A full disk must not keep anything from being given back, so a failure is only logged. */
function note(node: NodeContext, record: SandboxRecord, change: Partial<SandboxRecord>): void {
  Object.assign(record, change);
  try {
    node.store.put(record);
  } catch (error) {
    const { containerId } = record;
    node.log.warn(
      { containerId, fault: errorText(error) },
      "record can't be written, goes on without",
    );
  }
}

/** One error of several: the first one's code, all messages. */
export function combine(faults: readonly unknown[]): CniError {
  const [first] = faults;
  return new CniError(asFailure(first).code, faults.map(errorText).join("; "), { cause: first });
}
