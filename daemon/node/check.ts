import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { SandboxRequest } from "../../lib/cni/request.ts";
import { checkAttachment } from "./attachment.ts";
import type { NodeContext } from "./context.ts";
import { findInherited } from "./multus/cache-inherit.ts";
import type { SandboxRecord } from "./record.ts";
import { recordHead } from "./record-head.ts";
import { openSandbox } from "./sandbox.ts";

/**
 * CHECK of a sandbox that a previous Multus attached: its delegates compare what their cached results say. false: nobody's files name it. As with
 * Multus itself, a delegate without a cached result is passed over.
 */
async function checkInherited(
  node: NodeContext,
  request: SandboxRequest,
  signal: AbortSignal,
): Promise<boolean> {
  const found = await findInherited(node, request);
  if (found === undefined || found === "in hand" || found.attachments.length === 0) return false;
  using sandbox = openSandbox(request.netnsPath);
  const record: SandboxRecord = {
    ...recordHead(node, request),
    netns: request.netnsPath,
    netnsCookie: sandbox.cookie,
    phase: "attached",
    attachments: [...found.attachments],
  };
  for (const attachment of record.attachments) {
    if (attachment.result === undefined) continue;
    await checkAttachment({ node, record, attachment, sandbox, signal });
  }
  return true;
}

/**
 * CHECK: every attachment of the sandbox is as ADD left it. Rejects with code 3 when podnet did not attach the sandbox, and with the
 * first difference otherwise. The caller holds the locks of the container and its pod.
 */
export async function check(
  node: NodeContext,
  request: SandboxRequest,
  signal: AbortSignal,
): Promise<void> {
  const record = node.store.get(request);
  if (record === undefined && (await checkInherited(node, request, signal))) return;
  if (record === undefined || record.phase !== "attached") {
    const state = record === undefined ? "podnet has no record of it" : `it is ${record.phase}`;
    throw new CniError(
      cniCode.unknownContainer,
      `check sandbox "${request.containerId}" (${request.ifName}): ${state}`,
    );
  }
  using sandbox = openSandbox(request.netnsPath);
  if (record.bootId !== node.bootId || sandbox.cookie !== record.netnsCookie) {
    throw new CniError(
      cniCode.invalidNetns,
      `check sandbox "${request.containerId}": "${request.netnsPath}" is not the network namespace that it was attached in`,
    );
  }
  for (const attachment of record.attachments) {
    await checkAttachment({ node, record, attachment, sandbox, signal });
  }
}
