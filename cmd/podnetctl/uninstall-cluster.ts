import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { finalizer, schedulingGate } from "../../lib/api/names.ts";
import { decode } from "../../lib/base/decode.ts";
import { KubeClient } from "../../lib/kube/client.ts";
import { Credentials } from "../../lib/kube/credentials.ts";
import { listPath, objectPath, resources } from "../../lib/kube/resource.ts";
import { type ApiObject, UninstallApi } from "./uninstall-api.ts";

export interface ClusterOptions {
  readonly kubeconfig: string | undefined;
  /** Milliseconds. */
  readonly wait: number;
  /** Go on when the wait is over. */
  readonly force: boolean;
  readonly keepObjects: boolean;
  readonly print: (line: string) => void;
}

const namespace = "podnet-system";
const partOf = { labelSelector: "app.kubernetes.io/part-of=podnet" };
const admission = "/apis/admissionregistration.k8s.io/v1";
const apps = `/apis/apps/v1/namespaces/${namespace}`;
const agent = `${apps}/daemonsets/podnetd`;
const controller = `${apps}/deployments/podnet-controller`;
/** It keeps a node's token in its place for as long as there is a node agent. */
const nodePolicy = "podnet-node";
const lookEvery = 2_000;

interface Work {
  readonly api: UninstallApi;
  readonly options: ClusterOptions;
}

/**
 * Gives a cluster back, in an order in which pods can start and stop at every moment: nothing is admitted by podnet any more, nobody
 * makes podnet's objects anew, nodes use their own network for new pods, pods with podnet's networks are waited for, and only then
 * objects and programs go. Safe to repeat. Rejects when nodes are not done in time.
 */
export async function uninstallCluster(options: ClusterOptions): Promise<void> {
  const client = new KubeClient(new Credentials(options.kubeconfig), "podnetctl");
  const work: Work = { api: new UninstallApi(client), options };
  try {
    await admissionOff(work, (name) => name !== nodePolicy);
    await controllerOff(work);
    await nodesBack(work);
    await gatesOff(work);
    await finalizersOff(work);
    if (!options.keepObjects) await definitionsOff(work);
    await programsOff(work);
    await admissionOff(work, () => true);
  } finally {
    await client.close();
  }
}

/** Bindings before policies: a policy without a binding does nothing. */
async function admissionOff({ api, options }: Work, which: (name: string) => boolean) {
  const kinds = [
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
  ];
  for (const kind of kinds) {
    for (const { metadata } of await api.list(`${admission}/${kind}`, partOf)) {
      if (!which(metadata.name)) continue;
      await api.remove(`${admission}/${kind}/${metadata.name}`);
      options.print(`admission: ${kind} "${metadata.name}" deleted`);
    }
  }
  options.print("admission: off");
}

async function controllerOff(work: Work): Promise<void> {
  const { api, options } = work;
  if (!(await api.patch(controller, { spec: { replicas: 0 } }, "merge"))) {
    options.print("controller: there is none");
    return;
  }
  await until(work, "controller", async () => {
    const selector = { labelSelector: "app.kubernetes.io/name=podnet-controller" };
    const pods = await api.list(`/api/v1/namespaces/${namespace}/pods`, selector);
    return pods.length === 0 ? undefined : `${pods.length} pods still run`;
  });
  options.print("controller: stopped");
}

const agentStatus = z.looseObject({
  metadata: z.looseObject({ generation: z.number() }),
  status: z.looseObject({
    observedGeneration: z.number().default(0),
    desiredNumberScheduled: z.number().default(0),
    updatedNumberScheduled: z.number().default(0),
    numberReady: z.number().default(0),
  }),
});

/** A daemon that is told to remove itself is ready when nothing of podnet is left on its node. */
async function nodesBack(work: Work): Promise<void> {
  const { api, options } = work;
  const containers = [{ name: "podnetd", args: ["--install", "remove"] }];
  const body = {
    spec: {
      updateStrategy: { rollingUpdate: { maxUnavailable: "100%" } },
      template: { spec: { containers } },
    },
  };
  if (!(await api.patch(agent, body, "strategic"))) {
    options.print("nodes: there is no node agent");
    return;
  }
  const said = new Set<string>();
  await until(work, "nodes", async () => {
    for (const line of await nodesThatWait(api)) {
      if (!said.has(line)) options.print(`nodes: ${line}`);
      said.add(line);
    }
    const found = await api.get(agent);
    if (found === undefined) return undefined;
    const { metadata, status } = decode(agentStatus, found, agent);
    const { desiredNumberScheduled: all, updatedNumberScheduled: updated, numberReady } = status;
    const isSeen = status.observedGeneration >= metadata.generation;
    if (isSeen && updated >= all && numberReady >= all) return undefined;
    return `${isSeen ? Math.min(numberReady, updated) : 0} of ${all} nodes are done`;
  });
  options.print("nodes: new pods are started by the nodes' own network, nothing of podnet is left");
}

/** What node agents say that they wait for; the latest of each node. */
async function nodesThatWait(api: UninstallApi): Promise<string[]> {
  const query = { fieldSelector: "reason=RemovalWaits,involvedObject.kind=Node" };
  const event = z.looseObject({
    involvedObject: z.looseObject({ name: z.string() }),
    message: z.string(),
  });
  return (await api.list("/api/v1/namespaces/default/events", query)).map((item) => {
    const { involvedObject, message } = decode(event, item, "event");
    return `${involvedObject.name}: ${message}`;
  });
}

/** Pods that wait for networks wait no longer: nobody would ever let them go. */
async function gatesOff({ api, options }: Work): Promise<void> {
  const gated = z.looseObject({
    spec: z.looseObject({
      schedulingGates: z.array(z.looseObject({ name: z.string() })).default([]),
    }),
  });
  let count = 0;
  for (const pod of await api.list("/api/v1/pods", { fieldSelector: "status.phase=Pending" })) {
    const { schedulingGates } = decode(gated, pod, "pod").spec;
    if (schedulingGates.every(({ name }) => name !== schedulingGate)) continue;
    const spec = { schedulingGates: [{ $patch: "delete", name: schedulingGate }] };
    await api.patch(objectPath(resources.pods, keyOf(pod)), { spec }, "strategic");
    count++;
  }
  options.print(`gates: ${count} pods let go`);
}

async function finalizersOff({ api, options }: Work): Promise<void> {
  for (const resource of [resources.podNetworks, resources.podNetworkAttachments]) {
    let count = 0;
    for (const object of await api.list(listPath(resource))) {
      const { finalizers = [], resourceVersion } = object.metadata;
      if (!finalizers.includes(finalizer)) continue;
      const kept = finalizers.filter((name) => name !== finalizer);
      const body = { metadata: { resourceVersion, finalizers: kept } };
      await api.patch(objectPath(resource, keyOf(object)), body, "merge");
      count++;
    }
    options.print(`finalizers: off ${count} objects of kind ${resource.kind}`);
  }
}

function keyOf({ metadata }: ApiObject) {
  return { namespace: metadata.namespace ?? "", name: metadata.name };
}

/** Their objects go with them. NetworkAttachmentDefinitions are everybody's and stay. */
async function definitionsOff(work: Work): Promise<void> {
  const { api, options } = work;
  const base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
  for (const name of ["podnetworkattachments.podnet.dev", "podnetworks.podnet.dev"]) {
    if (!(await api.remove(`${base}/${name}`))) continue;
    await until(work, "objects", async () =>
      (await api.get(`${base}/${name}`)) === undefined ? undefined : `"${name}" is being deleted`,
    );
    options.print(`objects: definition "${name}" deleted, with its objects`);
  }
}

async function programsOff({ api, options }: Work): Promise<void> {
  for (const [what, path] of [
    ["node agent", agent],
    ["controller", controller],
  ] as const) {
    const was = await api.remove(path);
    options.print(`programs: ${what} ${was ? "deleted" : "is not there"}`);
  }
}

/** Waits until `ask` has nothing more to say, and prints what it says when it changes. Rejects when the wait is over, unless forced. */
async function until(
  { options }: Work,
  step: string,
  ask: () => Promise<string | undefined>,
): Promise<void> {
  let last: string | undefined;
  for (const end = Date.now() + options.wait; ; await sleep(lookEvery)) {
    const open = await ask();
    if (open === undefined) return;
    if (open !== last) options.print(`${step}: ${open}`);
    last = open;
    if (Date.now() < end) continue;
    if (options.force) {
      options.print(`${step}: not waited for any longer`);
      return;
    }
    throw new Error(
      `${step}: ${open} after ${options.wait / 1000} s: run it again, or use --force`,
    );
  }
}
