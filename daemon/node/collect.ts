import { errorText } from "../../lib/base/errors.ts";
import { type AttachmentRow, attachmentRows } from "./admin.ts";
import type { NodeContext } from "./context.ts";
import { collectNetworks, giveBackRecords } from "./gc.ts";
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
  const leftovers = node.store.all().filter((record) => {
    if (record.phase === "deleting") return true;
    using sandbox = reopenSandbox(node.bootId, record);
    return sandbox === undefined;
  });
  const rows = attachmentRows(leftovers, false);
  const faults = [
    ...(await giveBackRecords(node, leftovers, signal)),
    ...(await collectNetworks(node, signal)),
  ];
  const left = new Set(node.store.all().map(({ containerId }) => containerId));
  return {
    freed: rows.filter(({ containerId }) => !left.has(containerId)),
    faults: faults.map(errorText),
  };
}
