import { z } from "zod";
import { deadline } from "../../lib/base/deadlines.ts";
import { decode } from "../../lib/base/decode.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { answerVersion, type CniRequest, decodeRequest } from "../../lib/cni/request.ts";
import { encodeResult } from "../../lib/cni/result.ts";
import { type CniVersion, cniVersions, newestCniVersion } from "../../lib/cni/types.ts";
import type { EmittedEvent } from "../../lib/kube/events.ts";
import { add } from "./add.ts";
import type { CallsUnderway } from "./calls-underway.ts";
import { check } from "./check.ts";
import type { NodeContext } from "./context.ts";
import { del } from "./del.ts";
import type { History } from "./explain-history.ts";
import { asFailure } from "./failure.ts";
import type { Gate } from "./gate.ts";
import { gc } from "./gc.ts";
import type { Installer } from "./install/install.ts";
import { operationKeys } from "./keys.ts";
import type { Metrics } from "./metrics.ts";
import { podOf, podText } from "./pods.ts";
import { cniPathOf } from "./record-head.ts";
import type { Answer, Request } from "./server.ts";
import { status } from "./status.ts";

/** What dispatching works with. ADD and CHECK pass one gate and DEL another, so that ADDs never starve it. */
export interface Dispatch {
  readonly node: NodeContext;
  readonly metrics: Metrics;
  readonly gates: { readonly add: Gate; readonly del: Gate };
  /** Ends when the daemon stops: what is under way is undone. */
  readonly stopping: AbortSignal;
  /** Where the daemon installs itself. */
  readonly installer?: Installer;
  /** Hears of each answer once it is made; never throws, never waits. */
  readonly observer?: Observer;
  /** What was answered lately. */
  readonly history?: History;
  readonly calls: CallsUnderway;
}

interface Observer {
  answered(request: CniRequest | undefined, failure?: CniError): void;
  /** Events on a pod of late, where it writes any. */
  eventsOf?(namespace: string, name: string): readonly EmittedEvent[];
}

const header = z.object({ protocol: z.literal(1), env: z.record(z.string(), z.string()) });

interface Call {
  readonly env: Readonly<Record<string, string>>;
  readonly configText: string;
}

/** Splits a request of the stub: a line of JSON, then the configuration's bytes as they were. */
function decodeCall(body: Buffer): Call {
  const end = body.indexOf(0x0a);
  const line = body.toString("utf8", 0, end < 0 ? body.length : end);
  const { env } = decode(header, parse(line), "request of the stub");
  return { env, configText: end < 0 ? "" : body.toString("utf8", end + 1) };
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch (error) {
    throw new CniError(
      cniCode.decodingFailure,
      "decode request of the stub: its first line is not JSON",
      { cause: error },
    );
  }
}

/** Answers one CNI call; never rejects. The edge: deadline, metrics, log line, and errors as CNI errors. */
export async function dispatch(to: Dispatch, request: Request): Promise<Answer> {
  const started = performance.now();
  let verb = "unknown";
  let version: CniVersion = newestCniVersion;
  let fields: object = {};
  let cni: CniRequest | undefined;
  try {
    const call = decodeCall(request.body);
    version = answerVersion(call.configText);
    verb = verbLabel(call.env["CNI_COMMAND"]);
    cni = decodeRequest(call.env, call.configText);
    fields = logFields(cni);
    const answer = await limited(to, cni, request.gone);
    report(to, { verb, outcome: "ok", started, fields });
    to.history?.note(cni, { ms: performance.now() - started });
    to.observer?.answered(cni);
    return { status: 200, body: answer };
  } catch (error) {
    const failure = asFailure(error);
    report(to, { verb, outcome: String(failure.code), started, fields, failure });
    to.history?.note(cni, { ms: performance.now() - started, failure });
    to.observer?.answered(cni, failure);
    return { status: httpStatus(failure), body: errorBody(failure, version) };
  }
}

/** Runs a call within its deadline. A caller that goes away before its turn is forgotten; afterwards the work is finished. */
async function limited(to: Dispatch, cni: CniRequest, gone: AbortSignal): Promise<string> {
  const { operationTimeout } = to.node.config;
  using signal = deadline(operationTimeout * 1000, cni.verb, [to.stopping]);
  switch (cni.verb) {
    case "VERSION":
      return JSON.stringify({ cniVersion: cni.cniVersion, supportedVersions: cniVersions });
    case "STATUS":
      await status(to.node, signal, cniPathOf(to.node.config, cni));
      return "";
    case "GC":
      await gc(to.node, cni, signal);
      return "";
    case "ADD":
    case "DEL":
    case "CHECK":
      return await exclusive(to, cni, { signal, gone });
  }
}

type AttachmentRequest = Extract<CniRequest, { containerId: string }>;

interface Limits {
  readonly signal: AbortSignal;
  readonly gone: AbortSignal;
}

async function exclusive(to: Dispatch, cni: AttachmentRequest, limits: Limits): Promise<string> {
  const waiting = AbortSignal.any([limits.signal, limits.gone]);
  const gate = cni.verb === "DEL" ? to.gates.del : to.gates.add;
  const uid = podOf(cni.args).uid ?? to.node.store.get(cni)?.pod.uid;
  using call = to.calls.begin(cni.verb);
  const unlock = await to.node.locks.acquire(operationKeys(cni.containerId, uid), waiting);
  try {
    const leave = await gate.enter(waiting);
    call.runs();
    try {
      return await perform(to.node, cni, limits.signal);
    } finally {
      leave();
    }
  } finally {
    unlock();
  }
}

async function perform(
  node: NodeContext,
  cni: AttachmentRequest,
  signal: AbortSignal,
): Promise<string> {
  switch (cni.verb) {
    case "ADD":
      return JSON.stringify(encodeResult(await add(node, cni, signal), cni.cniVersion));
    case "DEL":
      await del(node, cni, signal);
      return "";
    case "CHECK":
      await check(node, cni, signal);
      return "";
  }
}

function errorBody(failure: CniError, version: CniVersion): string {
  return JSON.stringify({
    cniVersion: version,
    code: failure.code,
    msg: failure.message,
    ...(failure.details === undefined ? {} : { details: failure.details }),
  });
}

function httpStatus(failure: CniError): number {
  return failure.code === cniCode.internal ? 500 : 400;
}

/** The verb as a metric's label: only what is known, so that a caller can't make labels up. */
function verbLabel(command: string | undefined): string {
  const known = ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"];
  return command !== undefined && known.includes(command) ? command : "unknown";
}

function logFields(cni: CniRequest): object {
  const pod = podText(podOf(cni.args));
  return {
    ...(cni.containerId === undefined ? {} : { containerId: cni.containerId, ifName: cni.ifName }),
    ...(pod === undefined ? {} : { pod }),
    ...(cni.traceparent === undefined ? {} : { traceparent: cni.traceparent }),
  };
}

interface Report {
  readonly verb: string;
  readonly outcome: string;
  readonly started: number;
  readonly fields: object;
  readonly failure?: CniError;
}

function report(to: Dispatch, { verb, outcome, started, fields, failure }: Report): void {
  const milliseconds = performance.now() - started;
  to.metrics.observe(verb, outcome, milliseconds / 1000);
  const { log } = to.node;
  const line = { verb, outcome, ms: Math.round(milliseconds * 10) / 10, ...fields };
  if (failure === undefined) {
    if (verb === "STATUS") log.debug(line, "answered");
    else log.info(line, "answered");
  } else {
    const { cause } = failure;
    const stack =
      failure.code === cniCode.internal && cause instanceof Error ? cause.stack : undefined;
    log.warn({ ...line, fault: failure.message, details: failure.details, stack }, "refused");
  }
}
