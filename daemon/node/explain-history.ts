import { networksArg } from "../../lib/api/names.ts";
import type { CniError } from "../../lib/cni/errors.ts";
import type { CniRequest } from "../../lib/cni/request.ts";
import { podOf } from "./pods.ts";
import type { SandboxRecord } from "./record.ts";
import { podAnnotations } from "./select.ts";

/** One answered call for a sandbox. */
export interface PastCall {
  /** RFC 3339, when it arrived. */
  readonly at: string;
  readonly ms: number;
  readonly verb: string;
  readonly containerId: string;
  readonly ifName: string;
  readonly pod: SandboxRecord["pod"];
  /** Undefined: it succeeded. */
  readonly code?: number;
  readonly fault?: string;
  readonly details?: string;
  /** The pod's annotations, where the runtime passed them along. */
  readonly annotations?: Readonly<Record<string, string>>;
  /** Networks that the request itself names: CNI_ARGS or podnet's own configuration. */
  readonly networks?: string;
}

/** Characters of one text, and of all calls together. */
const longestText = 2_000;
const longestAnnotation = 8_000;
const mostCharacters = 512 * 1024;

/** Annotations that decide about networks; the rest of a pod's are nobody's business here. */
const ownDomain = /^(podnet\.dev|k8s\.v1\.cni\.cncf\.io|v1\.multus-cni\.io)\//;

/** The latest calls, for people who ask what became of a pod. Bounded by their size in memory; the oldest go first. */
export class History {
  readonly #limit: number;
  readonly #calls: { readonly call: PastCall; readonly size: number }[] = [];
  #size = 0;

  constructor(limit = mostCharacters) {
    this.#limit = limit;
  }

  /** Characters of what is kept. */
  get size(): number {
    return this.#size;
  }

  /** Remembers an answered call. Calls that are about no sandbox are not kept. */
  note(
    request: CniRequest | undefined,
    { ms, failure }: { readonly ms: number; readonly failure?: CniError | undefined },
  ): void {
    if (request?.containerId === undefined) return;
    const { containerId, ifName, verb } = request;
    const annotations = request.verb === "ADD" ? annotationsOf(request) : undefined;
    const call: PastCall = {
      at: new Date(Date.now() - ms).toISOString(),
      ms: Math.round(ms * 10) / 10,
      verb,
      containerId,
      ifName,
      pod: podOf(request.args),
      ...(failure === undefined ? {} : faultOf(failure)),
      ...(annotations === undefined ? {} : { annotations }),
      ...networksOf(request),
    };
    const size = JSON.stringify(call).length;
    this.#calls.push({ call, size });
    this.#size += size;
    while (this.#size > this.#limit) this.#size -= this.#calls.shift()?.size ?? this.#size;
  }

  /** Calls that match, oldest first. */
  find(matches: (call: PastCall) => boolean): PastCall[] {
    return this.#calls.map(({ call }) => call).filter(matches);
  }
}

function faultOf({ code, message, details }: CniError): Partial<PastCall> {
  return {
    code,
    fault: message.slice(0, longestText),
    ...(details === undefined ? {} : { details: details.slice(0, longestText) }),
  };
}

function annotationsOf({ config }: CniRequest): Record<string, string> | undefined {
  const all = podAnnotations(config);
  if (all === undefined) return undefined;
  const own = Object.entries(all).filter(([key]) => ownDomain.test(key));
  return Object.fromEntries(own.map(([key, value]) => [key, value.slice(0, longestAnnotation)]));
}

function networksOf({ config, args, verb }: CniRequest): Pick<PastCall, "networks"> {
  const value = args.get(networksArg) ?? config["networks"];
  if (verb !== "ADD" || value === undefined) return {};
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return { networks: text.slice(0, longestAnnotation) };
}
