import { attachRefusal, attachReview, isAllowed } from "../../lib/api/attach-access.ts";
import { errorText } from "../../lib/base/errors.ts";
import { isJsonObject, type JsonObject } from "../../lib/base/json.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { KubeClient } from "../../lib/kube/client.ts";
import { isNotFound } from "../../lib/kube/error.ts";
import { objectPath, resources } from "../../lib/kube/resource.ts";
import { isSame, keepPod } from "./kube/kept-pod.ts";
import { podOf } from "./pods.ts";
import { podNamespace } from "./select.ts";

/** Milliseconds that one question may take. */
const timeout = 5_000;

/**
 * Whether the pod that CNI_ARGS name may be attached to a PodNetwork that asks for the right to: gives why not, undefined when it may.
 * Asked anew each time, of the API itself: a right that was taken away counts at once. Rejects with code 11 when nobody can tell.
 */
export async function attachRightFault(
  client: KubeClient,
  args: ReadonlyMap<string, string>,
  network: string,
): Promise<string | undefined> {
  const namespace = podNamespace(args);
  const attacher = { namespace, serviceAccount: await serviceAccountOf(client, args) };
  const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
  const body = attachReview(attacher, network);
  const answer = await ask(() => client.request({ method: "POST", path, body, timeout }), network);
  const allowed = isAllowed(answer);
  if (allowed === undefined) throw unknown(network, "the answer is no SubjectAccessReview");
  return allowed ? undefined : attachRefusal(attacher, network);
}

/** Empty: the namespace's `default`, as for whoever calls without a pod (a person on the node, a dry run). */
async function serviceAccountOf(
  client: KubeClient,
  args: ReadonlyMap<string, string>,
): Promise<string> {
  const { namespace = "default", name, uid } = podOf(args);
  if (name === undefined) return "";
  const path = objectPath(resources.wholePods, { namespace, name });
  const title = `pod "${namespace}/${name}"`;
  const pod = await ask(() => client.request({ path, timeout }), title);
  if (!isJsonObject(pod) || !isSame(keepPod(pod), uid)) {
    throw unknown(title, "the API server has another pod of that name, or none");
  }
  const { spec } = pod;
  const account = isJsonObject(spec) ? (spec as JsonObject)["serviceAccountName"] : undefined;
  return typeof account === "string" ? account : "";
}

async function ask(question: () => Promise<unknown>, what: string): Promise<unknown> {
  try {
    return await question();
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw unknown(what, `the API server can't be asked: ${errorText(error)}`, error);
  }
}

function unknown(what: string, why: string, cause?: unknown): CniError {
  const message = `check the right to attach: ${what}: ${why}`;
  return new CniError(cniCode.tryAgainLater, message, cause === undefined ? {} : { cause });
}
