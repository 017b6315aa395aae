import { errorText } from "../../lib/base/errors.ts";
import { type AttachmentRow, attachmentRows } from "./admin.ts";
import type { NodeContext } from "./context.ts";
import { collectNetworks, giveBackRecords, isBusy } from "./gc.ts";
import { type Left, NodeLiveness } from "./liveness.ts";
import { giveBackForeign } from "./multus/cache-leftovers.ts";
import type { SandboxRecord } from "./record.ts";
import { reopenSandbox } from "./sandbox.ts";

/** What a collection freed, and what it could not. */
export interface Collection {
  readonly freed: readonly AttachmentRow[];
  /** What nobody lists and yet may be alive. */
  readonly left: readonly Left[];
  readonly faults: readonly string[];
}

/**
 * Gives back what is dead for sure: records whose namespace is nowhere on the node, DELs that are not finished, and what networks hold for no record and nobody
 * uses. A path that is missing proves nothing: the daemon may not see the node's folders. Safe to repeat; what has an operation under way is left alone.
 */
export async function collectLeftovers(
  node: NodeContext,
  signal: AbortSignal,
): Promise<Collection> {
  const faults: unknown[] = [];
  const liveness = await NodeLiveness.look(node, { strict: true });
  const isLeftover = (record: SandboxRecord): boolean => {
    if (record.phase === "deleting") return true;
    try {
      using sandbox = reopenSandbox(node.bootId, record);
      return sandbox === undefined && isDead(node, record, liveness);
    } catch (error) {
      faults.push(error);
      return false;
    }
  };
  const leftovers = node.store
    .all()
    .filter((record) => !isBusy(node, record) && isLeftover(record));
  // Taken before: giving back may change them.
  const rows = new Map(leftovers.map((record) => [record, attachmentRows([record], false)]));
  const given = await giveBackRecords(node, leftovers, { signal, still: isLeftover });
  const foreign = await giveBackForeign(node, { signal, listed: new Set(), liveness });
  faults.push(
    ...given.faults,
    ...foreign.faults,
    ...(await collectNetworks(node, { signal, liveness })),
  );
  return {
    freed: [
      ...given.done.flatMap((record) => rows.get(record) ?? []),
      ...attachmentRows(foreign.done, false),
    ],
    left: liveness.left,
    faults: [...new Set(faults.map(errorText))],
  };
}

/** After a reboot nothing of a sandbox is left in the kernel. */
function isDead(node: NodeContext, record: SandboxRecord, liveness: NodeLiveness): boolean {
  const why = record.bootId === node.bootId ? liveness.ofRecord(record) : undefined;
  if (why === undefined) return true;
  const networks = record.attachments.map(({ network }) => network).join(", ");
  liveness.leave(`container ${record.containerId} (${networks})`, why);
  return false;
}
