import { setTimeout as sleep } from "node:timers/promises";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { z } from "zod";
import { deadline } from "../../../lib/base/deadlines.ts";
import { decode } from "../../../lib/base/decode.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import { podResourcesService } from "./pod-resources-proto.ts";

/** Milliseconds that asking the kubelet may take in all, and the pause when it says that it is asked too often (it allows 100 a second). */
const longest = 10_000;
const pause = 100;
/** Bytes of one answer, as the kubelet's own clients have it. */
const longestAnswer = 16 * 1024 * 1024;

const claimResource = z.object({
  cdiDevices: z.array(z.object({ name: z.string() })).default([]),
  driverName: z.string().default(""),
  poolName: z.string().default(""),
  deviceName: z.string().default(""),
});
const podResources = z.object({
  name: z.string(),
  namespace: z.string(),
  containers: z
    .array(
      z.object({
        devices: z
          .array(z.object({ resourceName: z.string(), deviceIds: z.array(z.string()).default([]) }))
          .default([]),
        dynamicResources: z
          .array(
            z.object({
              claimName: z.string(),
              claimNamespace: z.string(),
              claimResources: z.array(claimResource).default([]),
            }),
          )
          .default([]),
      }),
    )
    .default([]),
});
const getAnswer = z.object({ podResources: podResources.nullish() });
const listAnswer = z.object({ podResources: z.array(podResources).default([]) });
type PodResources = z.output<typeof podResources>;

/** A device that a claim of the pod was given (Dynamic Resource Allocation). */
export interface ClaimedDevice {
  readonly driver: string;
  readonly pool: string;
  readonly device: string;
}

/** A claim of the pod as the kubelet prepared it. */
export interface PreparedClaim {
  readonly namespace: string;
  readonly name: string;
  /** Empty before Kubernetes 1.34, which names them first. */
  readonly devices: readonly ClaimedDevice[];
  /** Qualified names of CDI devices: `vendor.com/class=name`. */
  readonly cdi: readonly string[];
}

/** What a pod was given. */
export interface PodDevices {
  /** Ids of device plugins' devices by resource, sorted, each once. */
  readonly plugin: ReadonlyMap<string, readonly string[]>;
  readonly claims: readonly PreparedClaim[];
}

export interface PodQuestion {
  /** The kubelet's socket. */
  readonly socket: string;
  readonly namespace: string;
  readonly name: string;
  readonly signal: AbortSignal;
}

/**
 * Asks the kubelet which devices a pod was given. Rejects with code 11 when it does not answer within ten seconds, or does not know the
 * pod (yet).
 */
export async function askKubelet(question: PodQuestion): Promise<PodDevices> {
  using signal = deadline(longest, "ask the kubelet for devices", [question.signal]);
  const client = new Client(`unix:${question.socket}`, credentials.createInsecure(), {
    "grpc.max_receive_message_length": longestAnswer,
    "grpc.enable_http_proxy": 0,
    "grpc.use_local_subchannel_pool": 1,
  });
  try {
    const pod = await find(client, question, signal);
    if (pod === undefined) throw new Error("it does not know the pod");
    return devicesOf(pod);
  } catch (error) {
    const { socket, namespace, name } = question;
    const message = `ask the kubelet ("${socket}") for the devices of pod "${namespace}/${name}": ${errorText(error)}`;
    throw new CniError(cniCode.tryAgainLater, message, { cause: error });
  } finally {
    client.close();
  }
}

/** `Get` where the kubelet serves it; one that does not know it, or has it switched off, is asked for all pods. */
async function find(
  client: Client,
  { namespace, name }: PodQuestion,
  signal: AbortSignal,
): Promise<PodResources | undefined> {
  try {
    const asked = { podName: name, podNamespace: namespace };
    const answer = await call(client, "Get", { asked, signal });
    return decode(getAnswer, answer, "answer of the kubelet").podResources ?? undefined;
  } catch (error) {
    if (!isWithoutGet(error)) throw error;
  }
  const answer = await call(client, "List", { asked: {}, signal });
  const { podResources: all } = decode(listAnswer, answer, "answer of the kubelet");
  return all.find((pod) => pod.name === name && pod.namespace === namespace);
}

/** The kubelet answers UNKNOWN both for a method that its feature gate switches off and for a pod that it does not know. */
function isWithoutGet(error: unknown): boolean {
  const code = codeOf(error);
  return code === status.UNIMPLEMENTED || code === status.UNKNOWN;
}

function codeOf(error: unknown): number | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "number"
    ? error.code
    : undefined;
}

interface Call {
  readonly asked: object;
  readonly signal: AbortSignal;
}

async function call(client: Client, method: "Get" | "List", how: Call): Promise<unknown> {
  for (;;) {
    try {
      return await callOnce(client, method, how);
    } catch (error) {
      how.signal.throwIfAborted();
      if (codeOf(error) !== status.RESOURCE_EXHAUSTED) throw error;
      await sleep(pause + Math.random() * pause, undefined, { signal: how.signal });
    }
  }
}

let service: ReturnType<typeof podResourcesService> | undefined;

async function callOnce(
  client: Client,
  method: "Get" | "List",
  { asked, signal }: Call,
): Promise<unknown> {
  service ??= podResourcesService();
  const definition = service[method];
  if (definition === undefined) throw new TypeError(`no method ${method}`);
  const { path, requestSerialize, responseDeserialize } = definition;
  signal.throwIfAborted();
  return await new Promise<unknown>((resolve, reject) => {
    const answered = (error: ServiceError | null, answer: unknown) => {
      signal.removeEventListener("abort", cancel);
      if (error === null) resolve(answer);
      else reject(signal.aborted ? signal.reason : error);
    };
    const until = { deadline: Date.now() + longest };
    const running = client.makeUnaryRequest(
      path,
      requestSerialize,
      responseDeserialize,
      asked,
      new Metadata(),
      until,
      answered,
    );
    const cancel = () => running.cancel();
    signal.addEventListener("abort", cancel, { once: true });
  });
}

function devicesOf({ containers }: PodResources): PodDevices {
  const plugin = new Map<string, Set<string>>();
  for (const { resourceName, deviceIds } of containers.flatMap(({ devices }) => devices)) {
    const ids = plugin.get(resourceName) ?? new Set();
    for (const id of deviceIds) ids.add(id);
    plugin.set(resourceName, ids);
  }
  return {
    plugin: new Map([...plugin].map(([resource, ids]) => [resource, [...ids].sort()])),
    claims: claimsOf(containers),
  };
}

/** Containers that share a claim have it each. */
function claimsOf(containers: PodResources["containers"]): PreparedClaim[] {
  const all = containers.flatMap(({ dynamicResources }) => dynamicResources);
  const byName = Map.groupBy(all, (one) => `${one.claimNamespace}/${one.claimName}`);
  return [...byName.values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined) return [];
    const resources = same.flatMap(({ claimResources }) => claimResources);
    const named = resources.filter(({ driverName, deviceName }) => driverName && deviceName);
    return [
      {
        namespace: first.claimNamespace,
        name: first.claimName,
        devices: named.map((one) => ({
          driver: one.driverName,
          pool: one.poolName,
          device: one.deviceName,
        })),
        cdi: [...new Set(resources.flatMap((one) => one.cdiDevices.map(({ name }) => name)))],
      },
    ];
  });
}
