import { errorText } from "../../lib/base/errors.ts";
import { together } from "../../lib/base/together.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { SandboxRequest } from "../../lib/cni/request.ts";
import { type CniResult, emptyResult } from "../../lib/cni/types.ts";
import { attach } from "./attachment.ts";
import type { NodeContext } from "./context.ts";
import { settleDefaultRoutes } from "./default-routes.ts";
import { assignDevices, type Devices, type WithDevice } from "./devices/assign.ts";
import { devicesOfPod } from "./devices/given.ts";
import { infoFileOf } from "./devices/info.ts";
import { requireExecutables } from "./executables.ts";
import { asFailure } from "./failure.ts";
import { requireFamilies } from "./families.ts";
import { claimFixed } from "./kube/fixed-claims.ts";
import { effectiveScope, mergeResults } from "./merge.ts";
import type { Plan } from "./plan.ts";
import { planRequest } from "./plan-request.ts";
import { podOf } from "./pods.ts";
import type { AttachmentRecord, SandboxRecord } from "./record.ts";
import { cniPathOf, recordHead } from "./record-head.ts";
import { inRuns } from "./runs.ts";
import { type OpenSandbox, openSandbox, reopenSandbox } from "./sandbox.ts";
import { giveBack } from "./undo.ts";

/**
 * ADD: all networks of one sandbox, or none. The caller holds the locks of the container and of its pod.
 * A repeated ADD of a sandbox that is attached gets the answer it got before; one that was interrupted is undone first.
 */
export async function add(
  node: NodeContext,
  request: SandboxRequest,
  signal: AbortSignal,
): Promise<CniResult> {
  using sandbox = openSandbox(request.netnsPath);
  refuseOwnNamespace(node, request, sandbox);
  const adopted = await adopt(node, request, { sandbox, signal });
  if (adopted !== undefined) return adopted;
  await undoInterrupted(node, request, signal);
  const plan = await planRequest(node, request);
  const devices = await devicesOfPod(node, request, { attachments: plan.attachments, signal });
  await requireExecutables(node.plugins, plan, cniPathOf(node.config, request));
  await refuseTakenNames(plan, sandbox);
  refuseForeignNames(node, request, plan);
  await claimFixed(node, request, { attachments: plan.attachments, signal });
  const names = plan.attachments.map(({ conflist }) => decodeConflist(conflist).name);
  const record = await node.collections.begin(names, signal, () =>
    intend(node, request, { sandbox, plan, devices }),
  );
  try {
    await attachAll({ node, record, sandbox, signal }, plan);
  } catch (error) {
    throw await undo({ node, record, sandbox, signal }, error);
  }
  return answer(node, request, record);
}

interface AddWork {
  readonly node: NodeContext;
  readonly record: SandboxRecord;
  readonly sandbox: OpenSandbox;
  readonly signal: AbortSignal;
}

/** The node's own namespace is no sandbox, unless the runtime insists (CNI_NETNS_OVERRIDE). */
function refuseOwnNamespace(
  node: NodeContext,
  request: SandboxRequest,
  sandbox: OpenSandbox,
): void {
  if (request.netnsOverride || sandbox.cookie !== String(node.hostNetns.cookie())) return;
  throw new CniError(
    cniCode.invalidNetns,
    `CNI_NETNS "${request.netnsPath}" is the node's own network namespace: set CNI_NETNS_OVERRIDE=1 if it is meant`,
  );
}

/**
 * A record of the same container and interface: the result of before when the sandbox is the same and everything is in place,
 * else whatever there is of it is given back.
 */
async function adopt(
  node: NodeContext,
  request: SandboxRequest,
  at: { readonly sandbox: OpenSandbox; readonly signal: AbortSignal },
): Promise<CniResult | undefined> {
  const record = node.store.get(request);
  if (record === undefined) return undefined;
  const same = record.bootId === node.bootId && record.netnsCookie === at.sandbox.cookie;
  if (same && record.phase === "attached" && (await inPlace(record, at.sandbox))) {
    return answer(node, request, record);
  }
  using older = same ? undefined : reopenSandbox(node.bootId, record);
  await giveBack({ node, record, sandbox: same ? at.sandbox : older, signal: at.signal });
  return undefined;
}

async function inPlace(record: SandboxRecord, sandbox: OpenSandbox): Promise<boolean> {
  for (const { ifName, result } of record.attachments) {
    // A plugin need not make an interface.
    const isMade = result?.interfaces.some(({ name, sandbox: at }) => name === ifName && at);
    if (isMade && (await sandbox.rtnl.getLink({ name: ifName })) === undefined) return false;
  }
  return true;
}

/** Gives back what an interrupted ADD of the same pod left in an older sandbox, so that the new one may have its addresses. */
async function undoInterrupted(
  node: NodeContext,
  request: SandboxRequest,
  signal: AbortSignal,
): Promise<void> {
  const { uid } = podOf(request.args);
  if (uid === undefined) return;
  for (const record of node.store.all()) {
    if (record.pod.uid !== uid || record.phase === "attached") continue;
    if (record.containerId === request.containerId && record.ifName !== request.ifName) continue;
    using sandbox = reopenSandbox(node.bootId, record);
    await giveBack({ node, record, sandbox, signal });
  }
}

/** An interface that is there already belongs to somebody: it must not be mistaken for ours when the ADD is undone. */
async function refuseTakenNames(plan: Plan, sandbox: OpenSandbox): Promise<void> {
  const made = plan.attachments.filter(
    ({ conflist }) => decodeConflist(conflist).plugins[0]?.type !== "loopback",
  );
  const links = await together(made.map(({ ifName }) => sandbox.rtnl.getLink({ name: ifName })));
  const taken = made.find((_, place) => links[place] !== undefined);
  if (taken === undefined) return;
  throw new CniError(
    cniCode.invalidEnvironment,
    `attach network "${taken.network}": interface "${taken.ifName}" exists already in "${sandbox.path}"`,
  );
}

/** Everything of an attachment is found by its container and interface, so another call of the container must not have that one already. */
function refuseForeignNames(node: NodeContext, request: SandboxRequest, plan: Plan): void {
  for (const { ifName, network } of plan.attachments) {
    const owner = node.store.holderOf(request.containerId, ifName);
    if (owner === undefined) continue;
    throw new CniError(
      cniCode.invalidEnvironment,
      `attach network "${network}": interface "${ifName}" of container "${request.containerId}" belongs to its ADD for "${owner.ifName}" already: choose another interface name or container id`,
    );
  }
}

/** Writes the intent: from here on a DEL finds everything that this ADD may have made, and its devices are nobody else's. */
function intend(
  node: NodeContext,
  request: SandboxRequest,
  to: { readonly sandbox: OpenSandbox; readonly plan: Plan; readonly devices: Devices },
): SandboxRecord {
  const { attachments, leftAlone } = to.plan;
  const assigned = assignDevices(attachments, to.devices, {
    records: node.store.all(),
    bootId: node.bootId,
  });
  const record: SandboxRecord = {
    ...recordHead(node, request),
    netns: request.netnsPath,
    netnsCookie: to.sandbox.cookie,
    phase: "adding",
    attachments: assigned.map((one) => recordOf(node, request, one)),
    ...(leftAlone.length === 0 ? {} : { leftAlone: [...leftAlone] }),
  };
  node.store.put(record);
  return record;
}

function recordOf(
  { config }: NodeContext,
  request: SandboxRequest,
  { resourceName: _, ...planned }: WithDevice,
): AttachmentRecord {
  const deviceInfoFile = infoFileOf(config.deviceInfoDir, request, planned);
  const file = deviceInfoFile === undefined ? {} : { deviceInfoFile };
  return { ...planned, ...file, states: {} };
}

async function attachAll(work: AddWork, plan: Plan): Promise<void> {
  const { node, record } = work;
  const attachOne = async (attachment: AttachmentRecord): Promise<void> => {
    const result = await attach({ ...work, attachment });
    const families = plan.families[record.attachments.indexOf(attachment)] ?? {};
    requireFamilies(attachment.network, families, result);
  };
  for (const run of inRuns(record.attachments)) await together(run.map(attachOne));
  await settleDefaultRoutes({ rtnl: work.sandbox.rtnl, attachments: record.attachments, plan });
  record.phase = "attached";
  node.store.put(record);
}

/** The record's results as one, as much of it as this runtime is to see. */
function answer(node: NodeContext, request: SandboxRequest, record: SandboxRecord): CniResult {
  const results = record.attachments.map(({ network, result }) => ({
    network,
    result: result ?? emptyResult,
  }));
  return mergeResults(results, effectiveScope(node.config.resultScope, request));
}

/** Undoes a failed ADD and returns the error to answer with; what could not be undone stays on record and is retried. */
async function undo(work: AddWork, failure: unknown): Promise<unknown> {
  const seconds = work.node.config.undoTimeout;
  try {
    await giveBack({ ...work, signal: AbortSignal.timeout(seconds * 1000) });
    return failure;
  } catch (fault) {
    const details = `not undone yet, will be retried: ${errorText(fault)}`;
    return new CniError(asFailure(failure).code, errorText(failure), { details, cause: failure });
  }
}
