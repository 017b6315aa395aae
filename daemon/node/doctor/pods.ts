import { selectByAnnotations } from "../../../lib/api/pod-selection.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import type { NodeContext } from "../context.ts";
import { isSame, keepPod } from "../kube/kept-pod.ts";
import type { KubeNode } from "../kube/node.ts";
import { type ForeignAttachment, foreignAttachments } from "../multus/cache-inherit.ts";
import type { SandboxRecord } from "../record.ts";
import { type OpenSandbox, reopenSandbox } from "../sandbox.ts";
import { error, type Finding, ok, orFine, warn } from "./finding.ts";

/** What the look at pods needs of a pod of the API. */
export interface PodState {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly staticUid?: string;
  readonly annotations: Readonly<Record<string, string>>;
  /** It has containers that run, on the pod network, and is not on its way out. */
  readonly lives: boolean;
}

type Parts = Pick<NodeContext, "bootId"> & { readonly store: Pick<NodeContext["store"], "all"> };

/** Interfaces that the records promise and the kernel does not have. */
export async function interfaceFindings({ bootId, store }: Parts): Promise<Finding[]> {
  const findings: Finding[] = [];
  let number = 0;
  for (const record of store.all()) {
    if (record.phase !== "attached") continue;
    using sandbox = sandboxOf(bootId, record);
    if (sandbox === undefined) continue;
    number += record.attachments.length;
    findings.push(...(await missingIn(record, sandbox)));
  }
  return orFine(findings, ok("interfaces", `${number} attached, all there`));
}

function sandboxOf(bootId: string, record: SandboxRecord): OpenSandbox | undefined {
  try {
    return reopenSandbox(bootId, record);
  } catch {
    // Whether it lives is unknown: then it is not said to lack anything.
    return undefined;
  }
}

async function missingIn(record: SandboxRecord, { rtnl }: OpenSandbox): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const { ifName, network, result } of record.attachments) {
    const link = await rtnl.getLink({ name: ifName });
    const what = `interface "${ifName}" of network "${network}" in container "${record.containerId}"`;
    if (link === undefined) {
      findings.push(
        error("interfaces", `${what} is gone`, "delete the pod; look for who deleted it"),
      );
      continue;
    }
    const held = new Set((await rtnl.addresses(link.index)).map(({ address }) => ipOf(address)));
    const place = result?.interfaces.findLastIndex(({ sandbox }) => sandbox !== undefined);
    const lost = (result?.ips ?? [])
      .filter(({ interface: at }) => at === undefined || at === place)
      .filter(({ address }) => !held.has(ipOf(address)));
    for (const { address } of lost) {
      const todo = "delete the pod; look for who changed it";
      findings.push(error("interfaces", `${what} has lost its address ${address}`, todo));
    }
  }
  return findings;
}

function ipOf(cidr: string): string {
  return cidr.slice(0, cidr.indexOf("/"));
}

/** Pods of the node that lack an attachment which they asked for. One question to the API. */
export async function podFindings(
  kube: Pick<KubeNode, "client">,
  nodeName: string,
  { store, config }: Pick<Parts, "store"> & Pick<NodeContext, "config">,
): Promise<Finding[]> {
  let pods: PodState[];
  try {
    const query = { fieldSelector: `spec.nodeName=${nodeName}` };
    const answer = await kube.client.request({ path: "/api/v1/pods", query });
    pods = podsOf(answer);
  } catch (cause) {
    const todo = "see the findings on the API server";
    return [warn("pods", `can't be compared with what they asked for: ${errorText(cause)}`, todo)];
  }
  return comparePods(pods, store.all(), await foreignAttachments(config));
}

/** Compares what pods ask for with what the records say; `foreign`: what others attached before podnet. */
export function comparePods(
  pods: readonly PodState[],
  records: readonly SandboxRecord[],
  foreign: readonly ForeignAttachment[] = [],
): Finding[] {
  const living = pods.filter(({ lives }) => lives);
  const own = (pod: PodState) => foreign.filter((one) => isOf(pod, one.pod));
  const findings = living.flatMap((pod) => compareOne(pod, records, own(pod)));
  return orFine(
    findings,
    ok("pods", `${living.length} run on the pod network, none lacks what it asked for`),
  );
}

function isOf(pod: PodState, { uid, name, namespace }: SandboxRecord["pod"]): boolean {
  return name === pod.name && namespace === pod.namespace && isSame(pod, uid);
}

function compareOne(
  pod: PodState,
  records: readonly SandboxRecord[],
  foreign: readonly ForeignAttachment[],
): Finding[] {
  const { networks: asked, interfaces } = askedBy(pod);
  if (asked.length === 0) return [];
  const who = `pod "${pod.namespace}/${pod.name}"`;
  const own = records.filter((record) => isOf(pod, record.pod));
  const attached = own.filter(({ phase }) => phase === "attached");
  if (attached.length === 0) {
    // A previous Multus gave it all of them.
    if (new Set(foreign.map(({ ifname }) => ifname)).size >= interfaces) return [];
    const text = `${who} asked for ${asked.join(", ")}: podnet attached nothing to it`;
    const todo =
      "it started before podnet, or past it: delete it, so that it is made anew; see conflist";
    return [error("pods", text, todo)];
  }
  const has = attached.flatMap(({ attachments }) => attachments.map(({ network }) => network));
  const missing = asked.filter((network) => !has.includes(network));
  if (has.length >= asked.length && missing.length === 0) return [];
  const text = `${who} asked for ${asked.join(", ")} and has ${has.join(", ") || "nothing"}`;
  return [
    warn(
      "pods",
      text,
      "its annotations were changed after its start: delete it, so that it is made anew",
    ),
  ];
}

interface Asked {
  readonly networks: readonly string[];
  /** The default network's included. */
  readonly interfaces: number;
}

/** As results and records name networks; what only its attachment object names is not known here. */
function askedBy({ annotations, namespace }: PodState): Asked {
  try {
    const { selections, defaultNetwork, mode } = selectByAnnotations(annotations, namespace);
    const all = [...(defaultNetwork === undefined ? [] : [defaultNetwork]), ...selections];
    const networks = all.flatMap(({ ref }) => {
      if (ref.kind === "podNetworkAttachment") return [];
      return ref.kind === "nad" ? [`${ref.namespace}/${ref.name}`] : [ref.name];
    });
    return { networks, interfaces: selections.length + (mode === "additional" ? 1 : 0) };
  } catch {
    // The pod runs all the same: selectionPolicy is "ignore".
    return { networks: [], interfaces: 1 };
  }
}

function podsOf(answer: unknown): PodState[] {
  const items = isJsonObject(answer) ? answer["items"] : undefined;
  if (!Array.isArray(items)) return [];
  return (items as readonly unknown[]).filter(isJsonObject).map(podOfObject);
}

function podOfObject(object: JsonObject): PodState {
  const metadata = part(object, "metadata");
  const spec = part(object, "spec");
  const { phase } = part(object, "status");
  const { uid, annotations, staticUid } = keepPod(object);
  return {
    namespace: String(metadata["namespace"] ?? ""),
    name: String(metadata["name"] ?? ""),
    uid,
    annotations,
    ...(staticUid === undefined ? {} : { staticUid }),
    lives:
      phase === "Running" &&
      spec["hostNetwork"] !== true &&
      metadata["deletionTimestamp"] === undefined,
  };
}

function part(object: JsonObject, key: string): JsonObject {
  const value = object[key];
  return isJsonObject(value) ? value : {};
}
