import { CniError } from "../../../lib/cni/errors.ts";
import type { DelRequest } from "../../../lib/cni/request.ts";
import type { NodeContext } from "../context.ts";
import { operationKeys } from "../keys.ts";
import type { NodeLiveness } from "../liveness.ts";
import type { AttachmentRecord, SandboxRecord } from "../record.ts";
import { recordHead } from "../record-head.ts";
import { foreignNetns, reopenSandbox } from "../sandbox.ts";
import { giveBack } from "../undo.ts";
import {
  type ForeignRequest,
  findInherited,
  multusContainers,
  sandboxesOf,
} from "./cache-inherit.ts";

/** What a record of a sandbox that somebody else attached is made from. */
type Origin = ForeignRequest & Pick<DelRequest, "netnsPath" | "args">;

/** The record of a sandbox that somebody else attached, as far as it is known; on its way out. */
export function foreignRecord(
  node: NodeContext,
  request: Origin,
  attachments: AttachmentRecord[],
): SandboxRecord {
  return {
    ...recordHead(node, request),
    ...foreignNetns(node, request.netnsPath),
    deleting: new Date().toISOString(),
    phase: "deleting",
    attachments,
  };
}

interface Work {
  readonly node: NodeContext;
  readonly record: SandboxRecord;
  readonly signal: AbortSignal;
}

/** From here on it is a sandbox like any other: what can't be given back now stays on record and is tried again. */
export async function giveBackInherited({ node, record, signal }: Work): Promise<void> {
  node.store.put(record);
  const { containerId, attachments } = record;
  const networks = attachments.map(({ network }) => network);
  node.log.info({ containerId, networks }, "gives back what was attached before podnet");
  using sandbox = reopenSandbox(node.bootId, record);
  await giveBack({ node, record, sandbox, signal });
}

/** What became of sandboxes that a previous Multus left. */
export interface ForeignGivenBack {
  readonly done: readonly SandboxRecord[];
  readonly faults: readonly unknown[];
}

export interface ForeignOptions {
  readonly signal: AbortSignal;
  /** Containers that the runtime says are alive. */
  readonly listed: ReadonlySet<string>;
  readonly liveness: NodeLiveness;
}

/**
 * Gives back sandboxes of Multus whose namespaces are known and gone, and whose DEL never came. One that is listed, or of which nobody knows the
 * namespace, is left alone.
 */
export async function giveBackForeign(
  node: NodeContext,
  { signal, listed, liveness }: ForeignOptions,
): Promise<ForeignGivenBack> {
  const done: SandboxRecord[] = [];
  const faults: unknown[] = [];
  try {
    for (const containerId of await multusContainers(node.config)) {
      if (listed.has(containerId) || isLocked(node, containerId)) continue;
      if (liveness.inUse({ containerId }) !== undefined) continue;
      const record = await giveBackGone(node, containerId, signal);
      if (record !== undefined) done.push(record);
    }
  } catch (error) {
    faults.push(error);
  }
  return { done, faults };
}

async function giveBackGone(
  node: NodeContext,
  containerId: string,
  signal: AbortSignal,
): Promise<SandboxRecord | undefined> {
  const unlock = await node.locks.acquire(operationKeys(containerId, undefined), signal);
  try {
    const request: Origin = {
      containerId,
      ifName: "eth0",
      networkName: "podnet",
      cniPath: [],
      cniVersion: "1.0.0",
      config: {},
      netnsPath: undefined,
      args: new Map([["IgnoreUnknown", "1"]]),
    };
    if (node.store.get(request) !== undefined || !(await isGone(node, containerId)))
      return undefined;
    const inherited = await findInherited(node, request);
    if (inherited === undefined || inherited === "in hand") return undefined;
    const record = foreignRecord(node, request, [...inherited.attachments]);
    // Names in the files that nobody deletes any more go with it.
    await giveBackInherited({ node, record: { ...record, inherited: inherited.files }, signal });
    return record;
  } finally {
    unlock();
  }
}

/** Its namespaces are known by path, and none is there any more. */
export async function isGone(node: NodeContext, containerId: string): Promise<boolean> {
  const paths = await sandboxesOf(node.config, containerId);
  if (paths.length === 0) return false;
  try {
    return paths.every((path) => foreignNetns(node, path).netnsCookie === undefined);
  } catch (error) {
    // Whether it lives is unknown: then it does.
    if (error instanceof CniError) return false;
    throw error;
  }
}

function isLocked(node: NodeContext, containerId: string): boolean {
  return operationKeys(containerId, undefined).some((key) => node.locks.isBusy(key));
}
