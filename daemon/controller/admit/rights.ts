import {
  type Attacher,
  accessMode,
  attachRefusal,
  attachReview,
  isAllowed,
} from "../../../lib/api/attach-access.ts";
import { decideGrant } from "../../../lib/api/grants.ts";
import { quote } from "../../../lib/api/names.ts";
import { defaultOf } from "../../../lib/api/pod-rules.ts";
import { selectByAnnotations } from "../../../lib/api/pod-selection.ts";
import { errorText } from "../../../lib/base/errors.ts";
import type { ControllerContext } from "../context.ts";
import type { ReviewedPod } from "./pod-object.ts";

/** Milliseconds for one question, and questions at once: the API server waits for the whole answer for a few seconds. */
const questionTimeout = 1_500;
const questionsAtOnce = 8;

type RightsContext = Pick<ControllerContext, "client" | "stores" | "log">;

/**
 * Why a pod may not use the PodNetworks that it would get: their grants, and the right to attach where they ask for one. Only what is
 * known here and now counts: a network that is not there yet, or an API server that gives no answer, is left to the node, where the same
 * rules hold and nobody gets past.
 */
export async function rightsFaults(context: RightsContext, pod: ReviewedPod): Promise<string[]> {
  const networks = networksOf(context, pod);
  const answers: (string | undefined)[] = [];
  const queue = networks.entries();
  const worker = async (): Promise<void> => {
    for (const [place, name] of queue) answers[place] = await rightFault(context, pod, name);
  };
  await Promise.all(Array.from({ length: Math.min(questionsAtOnce, networks.length) }, worker));
  return answers.filter((answer) => answer !== undefined);
}

/** Names of the PodNetworks that the pod would be attached to, as far as they are known; its selection is valid. */
function networksOf({ stores }: RightsContext, pod: ReviewedPod): readonly string[] {
  const { namespace } = pod;
  const { mode, selections, defaultNetwork } = selectByAnnotations(pod.annotations, namespace);
  const names = new Set<string>();
  if (mode === "additional" && defaultNetwork === undefined) {
    const own = stores.namespaces.get({ namespace: "", name: namespace })?.annotations ?? {};
    names.add(defaultOf(own));
  }
  for (const { ref } of selections) {
    if (ref.kind === "podNetwork") names.add(ref.name);
    if (ref.kind !== "podNetworkAttachment") continue;
    const behind = stores.attachments.get(ref)?.object?.spec.podNetworkName;
    if (behind !== undefined) names.add(behind);
  }
  return [...names];
}

async function rightFault(
  context: RightsContext,
  pod: ReviewedPod,
  name: string,
): Promise<string | undefined> {
  const network = context.stores.networks.get({ namespace: "", name })?.object;
  if (network === undefined) return undefined;
  const given = network.metadata.annotations;
  const title = `PodNetwork ${quote(name)}`;
  const grant = decideGrant({
    target: { kind: "PodNetwork", annotations: given },
    namespace: pod.namespace,
    labels: context.stores.namespaces.get({ namespace: "", name: pod.namespace })?.labels,
    namespaceIsolation: false,
    globalNamespaces: [],
  });
  if (grant.answer === "refused") {
    return `${title}: namespace ${quote(pod.namespace)} may not use it: ${grant.reason}`;
  }
  const access = accessMode(given);
  if (access.mode === "open") return undefined;
  if (access.mode === "faulty") return `${title}: nobody may use it: ${access.reason}`;
  const may = await mayAttach(context, pod, name);
  return may === false ? `${title}: ${attachRefusal(pod, name)}` : undefined;
}

/** undefined: nobody could tell. */
async function mayAttach(
  { client, log }: RightsContext,
  attacher: Attacher,
  network: string,
): Promise<boolean | undefined> {
  try {
    const answer = await client.request({
      method: "POST",
      path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      body: attachReview(attacher, network),
      timeout: questionTimeout,
    });
    return isAllowed(answer);
  } catch (error) {
    log.warn({ network, fault: errorText(error) }, "right to attach not known, left to the node");
    return undefined;
  }
}
