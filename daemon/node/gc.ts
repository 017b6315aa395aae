import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { NetworkRequest } from "../../lib/cni/request.ts";
import type { ValidAttachment } from "../../lib/cni/types.ts";
import { verbAllowed } from "../../lib/cni/versions.ts";
import type { NodeContext } from "./context.ts";
import { missingExecutables } from "./executables.ts";
import { asFailure } from "./failure.ts";
import { operationKeys } from "./keys.ts";
import { NodeLiveness } from "./liveness.ts";
import { type ForeignAttachment, foreignAttachments } from "./multus/cache-inherit.ts";
import { giveBackForeign } from "./multus/cache-leftovers.ts";
import { collectGarbage, networkSteps } from "./network-calls.ts";
import type { SandboxRecord } from "./record.ts";
import { knownConflists } from "./resolve.ts";
import { reopenSandbox } from "./sandbox.ts";
import { combine, giveBack } from "./undo.ts";

const validAttachments = z.array(z.object({ containerID: z.string().min(1), ifname: z.string() }));

/**
 * The list of `cni.dev/valid-attachments` (the name that the CNI project's Go library once sent too is taken when the right one
 * is absent). undefined when there is none: then nothing is known to be garbage.
 */
export function decodeValidAttachments(request: NetworkRequest): ValidAttachment[] | undefined {
  const list = request.config["cni.dev/valid-attachments"] ?? request.config["cni.dev/attachments"];
  if (list === undefined || list === null) return undefined;
  return decode(validAttachments, list, "cni.dev/valid-attachments");
}

/**
 * GC: gives back every sandbox of this CNI network that the runtime does not list, then lets each network free what belongs to
 * none of the attachments left. A container that is listed by one interface keeps all its attachments; one with an operation
 * under way is left alone. Goes on after a failure and rejects with all of them at the end.
 */
export async function gc(
  node: NodeContext,
  request: NetworkRequest,
  signal: AbortSignal,
): Promise<void> {
  const valid = decodeValidAttachments(request);
  if (valid === undefined) return;
  const listed = new Set(valid.map(({ containerID }) => containerID));
  const garbage = node.store
    .all()
    .filter(
      (record) =>
        record.cniNetwork === request.networkName &&
        !listed.has(record.containerId) &&
        !isBusy(node, record),
    );
  const { faults } = await giveBackRecords(node, garbage, { signal });
  // The runtime knows its containers, but not what others than it attached to the same networks.
  const liveness = await NodeLiveness.look(node, { strict: false, listed });
  faults.push(...(await giveBackForeign(node, { signal, listed, liveness })).faults);
  faults.push(...(await collectNetworks(node, { signal, listed: valid, liveness })));
  for (const one of liveness.left) node.log.warn(one, "gc leaves something alone");
  if (faults.length > 0) throw combine(faults);
}

/** An operation of the record's container or pod is under way or waits. */
export function isBusy(node: NodeContext, record: SandboxRecord): boolean {
  return keysOf(record).some((key) => node.locks.isBusy(key));
}

function keysOf(record: SandboxRecord): string[] {
  return operationKeys(record.containerId, record.pod.uid);
}

export interface GiveBackOptions {
  readonly signal: AbortSignal;
  /** Whether a record is to be given back, asked again when its turn has come: meanwhile its container may have come back. */
  readonly still?: (record: SandboxRecord) => boolean;
}

/** What became of records. */
export interface GivenBack {
  readonly done: SandboxRecord[];
  readonly faults: unknown[];
}

/** Gives back records that nobody uses; one that is locked is in use, and one that is not the store's any more is somebody's past. */
export async function giveBackRecords(
  node: NodeContext,
  records: readonly SandboxRecord[],
  { signal, still = () => true }: GiveBackOptions,
): Promise<GivenBack> {
  const done: SandboxRecord[] = [];
  const faults: unknown[] = [];
  for (const record of records) {
    if (isBusy(node, record)) continue;
    using _ = disposing(await node.locks.acquire(keysOf(record), signal));
    try {
      if (node.store.get(record) !== record || !still(record)) continue;
      using sandbox = reopenSandbox(node.bootId, record);
      await giveBack({ node, record, sandbox, signal });
      done.push(record);
    } catch (error) {
      faults.push(error);
    }
  }
  return { done, faults };
}

function disposing(release: () => void): Disposable {
  return { [Symbol.dispose]: release };
}

export interface CollectOptions {
  readonly signal: AbortSignal;
  /** What the runtime says is attached, whoever attached it. */
  readonly listed?: readonly ValidAttachment[];
  readonly liveness: NodeLiveness;
}

/** Lets each network that is known to the node free what no record stands for and nobody lists. Returns what failed. */
export async function collectNetworks(
  node: NodeContext,
  { signal, listed = [], liveness }: CollectOptions,
): Promise<unknown[]> {
  const [unreadable] = node.store.unreadable;
  if (unreadable !== undefined) {
    const message = `collect networks: record "${unreadable}" can't be read, so what it stands for would be taken for garbage: repair or remove it`;
    return [new CniError(cniCode.ioFailure, message)];
  }
  const faults: unknown[] = [];
  let foreign: readonly ForeignAttachment[];
  try {
    foreign = await foreignAttachments(node.config);
  } catch (error) {
    const message = `collect networks: what others attached can't be read: ${errorText(error)}`;
    return [new CniError(cniCode.ioFailure, message, { cause: error })];
  }
  for (const conflist of await everyConflist(node, faults)) {
    if (conflist.disableGC) continue;
    const { name } = conflist;
    const held = foreign.filter(({ network }) => network === name);
    try {
      const without = held.length > 0 ? none : await passedOver(node, conflist, liveness);
      await node.collections.collect(name, () => {
        const valid = [...validOf(node, name), ...held, ...listed];
        const steps = networkSteps(node, conflist, { signal, liveness });
        return collectGarbage(steps, { valid, without });
      });
    } catch (error) {
      faults.push(asFailure(error, `collect network "${name}"`));
    }
  }
  return faults;
}

const none: ReadonlyMap<string, string> = new Map();

/**
 * The types of a network that nothing is attached to whose executables this node does not have: it may be for other nodes, and what was never here
 * has left nothing. Whoever reads of the collection is told.
 */
async function passedOver(
  node: NodeContext,
  conflist: Conflist,
  liveness: NodeLiveness,
): Promise<ReadonlyMap<string, string>> {
  const { name, cniVersion } = conflist;
  if (!verbAllowed("GC", cniVersion) || validOf(node, name).length > 0) return none;
  const missing = await missingExecutables(node.plugins, conflist, node.config.cniBinDir);
  for (const why of missing.values()) liveness.leave(`unused network "${name}"`, why);
  return missing;
}

/** The networks of all records and those that the source knows, each once; `faults` gets what the source could not tell. */
async function everyConflist(node: NodeContext, faults: unknown[]): Promise<Conflist[]> {
  const texts = new Set<string>();
  for (const record of node.store.all()) {
    for (const attachment of record.attachments) texts.add(attachment.conflist);
  }
  try {
    for (const { text } of await knownConflists(node.networks)) texts.add(text);
  } catch (error) {
    faults.push(error);
  }
  return [...texts].map((text) => decodeConflist(text));
}

/** What is attached to a network now, whoever the runtime is. */
function validOf(node: NodeContext, network: string): ValidAttachment[] {
  const valid: ValidAttachment[] = [];
  for (const record of node.store.all()) {
    for (const attachment of record.attachments) {
      if (decodeConflist(attachment.conflist).name !== network) continue;
      valid.push({ containerID: record.containerId, ifname: attachment.ifName });
    }
  }
  return valid;
}
