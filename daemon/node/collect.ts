import { errorText } from "../../lib/base/errors.ts";
import { type AttachmentRow, attachmentRows } from "./admin.ts";
import type { NodeContext } from "./context.ts";
import { collectNetworks, giveBackRecords, isBusy } from "./gc.ts";
import { giveBackForeign } from "./multus-cache-leftovers.ts";
import type { SandboxRecord } from "./record.ts";
import { reopenSandbox } from "./sandbox.ts";

/** What a collection freed, and what it could not. */
export interface Collection {
  readonly freed: readonly AttachmentRow[];
  readonly faults: readonly string[];
}

/**
 * Gives back what no live namespace owns: records whose namespace is gone, DELs that are not finished, and what networks hold
 * for no record. Safe to repeat; what has an operation under way is left alone.
 */
export async function collectLeftovers(
  node: NodeContext,
  signal: AbortSignal,
): Promise<Collection> {
  const faults: unknown[] = [];
  const isLeftover = (record: SandboxRecord): boolean => {
    if (record.phase === "deleting") return true;
    try {
      using sandbox = reopenSandbox(node.bootId, record);
      return sandbox === undefined;
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
  const foreign = await giveBackForeign(node, { signal, listed: new Set() });
  faults.push(...given.faults, ...foreign.faults, ...(await collectNetworks(node, { signal })));
  return {
    freed: [
      ...given.done.flatMap((record) => rows.get(record) ?? []),
      ...attachmentRows(foreign.done, false),
    ],
    faults: [...new Set(faults.map(errorText))],
  };
}
