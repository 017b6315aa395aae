import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import type { NetworkRequest } from "../../lib/cni/request.ts";
import type { ValidAttachment } from "../../lib/cni/types.ts";
import type { NodeContext } from "./context.ts";
import { operationKeys } from "./keys.ts";
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
      (record) => record.cniNetwork === request.networkName && !listed.has(record.containerId),
    );
  const faults = [
    ...(await giveBackRecords(node, garbage, signal)),
    ...(await collectNetworks(node, signal)),
  ];
  if (faults.length > 0) throw combine(faults);
}

/** Gives back records that nobody uses; one that is locked is in use. Returns what failed. */
export async function giveBackRecords(
  node: NodeContext,
  records: readonly SandboxRecord[],
  signal: AbortSignal,
): Promise<unknown[]> {
  const faults: unknown[] = [];
  for (const record of records) {
    const keys = operationKeys(record.containerId, record.pod.uid);
    if (keys.some((key) => node.locks.isBusy(key))) continue;
    const release = await node.locks.acquire(keys, signal);
    try {
      using sandbox = reopenSandbox(node.bootId, record);
      await giveBack({ node, record, sandbox, signal });
    } catch (error) {
      faults.push(error);
    } finally {
      release();
    }
  }
  return faults;
}

/** Lets each network that is known to the node free what no record stands for. Returns what failed. */
export async function collectNetworks(node: NodeContext, signal: AbortSignal): Promise<unknown[]> {
  const faults: unknown[] = [];
  for (const conflist of await everyConflist(node)) {
    if (conflist.disableGC) continue;
    try {
      await collectGarbage(networkSteps(node, conflist, signal), validOf(node, conflist.name));
    } catch (error) {
      faults.push(error);
    }
  }
  return faults;
}

/** The networks of all records and those that the source knows, each once. */
async function everyConflist(node: NodeContext): Promise<Conflist[]> {
  const texts = new Set<string>();
  for (const record of node.store.all()) {
    for (const attachment of record.attachments) texts.add(attachment.conflist);
  }
  for (const { text } of await knownConflists(node.networks)) texts.add(text);
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
