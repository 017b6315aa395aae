import type { SandboxRecord } from "./record.ts";

type Pod = SandboxRecord["pod"];

/** The pod that a Kubernetes runtime names in CNI_ARGS; empty elsewhere. */
export function podOf(args: ReadonlyMap<string, string>): Pod {
  const pod: Pod = {};
  const namespace = args.get("K8S_POD_NAMESPACE");
  const name = args.get("K8S_POD_NAME");
  const uid = args.get("K8S_POD_UID");
  if (namespace) pod.namespace = namespace;
  if (name) pod.name = name;
  if (uid) pod.uid = uid;
  return pod;
}

/** `team-a/web-0`, for people; undefined when the runtime named no pod. */
export function podText(pod: Pod): string | undefined {
  if (pod.name === undefined) return undefined;
  return pod.namespace === undefined ? pod.name : `${pod.namespace}/${pod.name}`;
}
