import { errorText } from "../../lib/base/errors.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { EmittedEvent } from "../../lib/kube/events.ts";
import { type AttachmentRow, attachmentRows } from "./admin.ts";
import type { NodeContext } from "./context.ts";
import type { History, PastCall } from "./explain-history.ts";
import { asFailure } from "./failure.ts";
import { type ForeignAttachment, foreignAttachments } from "./multus/cache-inherit.ts";
import { nextStep } from "./next-steps.ts";
import { type PreviewRow, previewPlan } from "./plan-request.ts";
import type { SandboxRecord } from "./record.ts";

/** Whose networks are to be explained: a pod, or a container. */
export type ExplainTarget =
  | { readonly namespace: string; readonly name: string }
  | { readonly containerId: string };

export interface ExplainParts {
  readonly node: NodeContext;
  readonly history: History;
  /** Events on a pod, where there is a cluster. */
  readonly eventsOf: (namespace: string, name: string) => readonly EmittedEvent[];
}

/** What the pod asked for, and who said so. */
export interface Asked {
  readonly source: "api" | "runtime" | "unknown";
  /** As they were written. */
  readonly annotations: Readonly<Record<string, string>>;
  /** What the runtime's call itself named (PODNET_NETWORKS, or `networks` of podnet's configuration). */
  readonly networks?: string;
  /** Of the pod's namespace. */
  readonly namespaceAnnotations: Readonly<Record<string, string>>;
}

/** One network that the pod has or would get. */
export interface ResolvedRow {
  readonly network: string;
  readonly interface: string;
  readonly plugins: readonly string[];
  readonly ipam: readonly string[];
}

/** One call of the runtime, with what to do where it failed. */
export interface Attempt extends PastCall {
  readonly name?: string;
  readonly next?: string;
}

export interface Explanation {
  readonly pod: SandboxRecord["pod"];
  readonly asked: Asked;
  readonly resolved: {
    /** `record`: what was attached; `dry run`: what it would get now. */
    readonly source: "record" | "dry run";
    readonly networks: readonly ResolvedRow[];
    readonly fault?: string;
    readonly code?: number;
    readonly next?: string;
  };
  readonly done: readonly AttachmentRow[];
  /** What somebody else attached before podnet, as the files of a previous Multus or of the runtime say. */
  readonly before: readonly { readonly network: string; readonly interface: string }[];
  readonly attempts: readonly Attempt[];
  readonly events: readonly EmittedEvent[];
}

/**
 * Tells what became of a pod's networks: what it asked for, what that means, what was done, and where it failed. Changes nothing. Rejects with code 3
 * when nothing is known of it.
 */
export async function explain(parts: ExplainParts, target: ExplainTarget): Promise<Explanation> {
  const { node, history } = parts;
  const records = node.store.all().filter((record) => isOf(target, record));
  const calls = history.find((call) => isOf(target, call));
  const before = records.length > 0 ? [] : await foreignOf(node, target);
  const pod = podOfAll(target, [...before, ...records], calls);
  const named = calls.findLast(({ networks }) => networks !== undefined)?.networks;
  const asked = {
    ...(await askedOf(parts, pod, calls)),
    ...(named === undefined ? {} : { networks: named }),
  };
  const nothing = [records, calls, before].every(({ length }) => length === 0);
  if (nothing && asked.source === "unknown") {
    const what =
      "name" in target
        ? `pod "${target.namespace}/${target.name}"`
        : `container "${target.containerId}"`;
    const message = `explain ${what}: podnet has no record of it and no call for it since the daemon started: is it a pod of this node, and on the pod network?`;
    throw new CniError(cniCode.unknownContainer, message);
  }
  return {
    pod,
    asked,
    resolved: records.length > 0 ? fromRecords(records) : await unresolved(node, pod, asked),
    done: attachmentRows(records, false),
    before: [...new Map(before.map((one) => [one.ifname, one])).values()].map(
      ({ network, ifname }) => ({ network, interface: ifname }),
    ),
    attempts: calls.map(withNextStep),
    events: eventsOf(parts, pod),
  };
}

function isOf(
  target: ExplainTarget,
  { containerId, pod }: Pick<PastCall, "containerId" | "pod">,
): boolean {
  if ("name" in target) return pod.name === target.name && pod.namespace === target.namespace;
  return containerId === target.containerId || containerId.startsWith(target.containerId);
}

/** Nobody knows the pod of what only Multus' own file names. Files that can't be read are others' business here. */
async function foreignOf(
  { config }: NodeContext,
  target: ExplainTarget,
): Promise<ForeignAttachment[]> {
  const all = await foreignAttachments(config).catch(() => []);
  return all.filter(({ containerID, pod }) => isOf(target, { containerId: containerID, pod }));
}

function podOfAll(
  target: ExplainTarget,
  records: readonly Pick<SandboxRecord, "pod">[],
  calls: readonly PastCall[],
): SandboxRecord["pod"] {
  const known = records.at(-1)?.pod ?? calls.at(-1)?.pod;
  return known ?? ("name" in target ? { namespace: target.namespace, name: target.name } : {});
}

async function askedOf(
  { node: { kube } }: ExplainParts,
  { namespace, name }: SandboxRecord["pod"],
  calls: readonly PastCall[],
): Promise<Asked> {
  const passed = calls.findLast(({ annotations }) => annotations !== undefined)?.annotations;
  if (kube !== undefined && namespace !== undefined && name !== undefined) {
    // An API that is away must not keep anybody from seeing the rest.
    const known = await kube.pods.lookup.find({ namespace, name }).catch(() => undefined);
    const place = await kube.namespace(namespace).catch(() => undefined);
    if (known !== undefined) {
      const namespaceAnnotations = place?.annotations ?? {};
      return { source: "api", annotations: known.annotations, namespaceAnnotations };
    }
  }
  const source = passed === undefined ? "unknown" : "runtime";
  return { source, annotations: passed ?? {}, namespaceAnnotations: {} };
}

function fromRecords(records: readonly SandboxRecord[]): Explanation["resolved"] {
  const networks = records.flatMap(({ attachments }) =>
    attachments.map(({ network, ifName, conflist }) => {
      const { plugins } = decodeConflist(conflist);
      return {
        network,
        interface: ifName,
        plugins: plugins.map(({ type }) => type),
        ipam: plugins.flatMap(({ ipam }) => ipam?.type ?? []),
      };
    }),
  );
  return { source: "record", networks };
}

/** What a pod without a record would get, where what it asks for is known. */
async function unresolved(
  node: NodeContext,
  pod: SandboxRecord["pod"],
  asked: Asked,
): Promise<Explanation["resolved"]> {
  if (asked.source === "unknown") return { source: "dry run", networks: [] };
  return await dryRun(node, pod, asked);
}

async function dryRun(
  node: NodeContext,
  { namespace = "default" }: SandboxRecord["pod"],
  { annotations }: Asked,
): Promise<Explanation["resolved"]> {
  try {
    const wish = { annotations, namespace, ifName: "eth0" };
    const rows: readonly PreviewRow[] = await previewPlan(node, wish);
    const networks = rows.map(({ network, interface: ifName, plugins, ipam }) => ({
      network,
      interface: ifName,
      plugins,
      ipam,
    }));
    return { source: "dry run", networks };
  } catch (error) {
    const { code } = asFailure(error);
    const { step } = nextStep(code);
    return { source: "dry run", networks: [], fault: errorText(error), code, next: step };
  }
}

function withNextStep(call: PastCall): Attempt {
  if (call.code === undefined) return call;
  const { name, step } = nextStep(call.code);
  return { ...call, name, next: step };
}

function eventsOf(
  parts: ExplainParts,
  { namespace, name }: SandboxRecord["pod"],
): readonly EmittedEvent[] {
  return namespace === undefined || name === undefined ? [] : parts.eventsOf(namespace, name);
}
