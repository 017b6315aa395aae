import { z } from "zod";
import { deadline } from "../../lib/base/deadlines.ts";
import { decode } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { CniError } from "../../lib/cni/errors.ts";
import { attachmentRows } from "./admin.ts";
import { collectLeftovers } from "./collect.ts";
import { type Dispatch, dispatch } from "./dispatch.ts";
import { removeFromNode } from "./install/remove.ts";
import { operatorEndpoints } from "./operator-routes.ts";
import { previewPlan } from "./plan-request.ts";
import type { Answer, Request } from "./server.ts";

type Endpoint = (to: Dispatch, request: Request) => Promise<Answer>;

function json(value: unknown): Answer {
  return { status: 200, body: JSON.stringify(value) };
}

const metrics: Endpoint = async ({ metrics: { registry } }) => ({
  status: 200,
  body: await registry.metrics(),
  contentType: registry.contentType,
});

const health: Endpoint = async () => json({ status: "ok" });

/** Whether new pods come to podnet and can be attached; health says whether the daemon itself works. */
const ready: Endpoint = async ({ node, installer }) => {
  const silent = node.kube?.watches().every(({ age }) => age === undefined) === true;
  const faults = [
    ...(installer?.fault === undefined ? [] : [installer.fault]),
    ...(silent ? ["the API server has not answered yet"] : []),
  ];
  if (faults.length === 0) return json({ status: "ok" });
  return { ...json({ status: "not ready", faults }), status: 503 };
};

const list: Endpoint = async ({ node }, { query }) =>
  json(attachmentRows(node.store.all(), query.get("pending") === "true"));

const collect: Endpoint = async ({ node, stopping }) => {
  using signal = deadline(node.config.operationTimeout * 1000, "gc", [stopping]);
  return json(await collectLeftovers(node, signal));
};

const preview = z.object({
  annotations: z.record(z.string(), z.string()).default({}),
  namespace: z.string().default("default"),
  ifName: z.string().default("eth0"),
});

const resolve: Endpoint = async ({ node }, { body }) => {
  const wish = decode(preview, JSON.parse(body.toString("utf8")), "resolve request");
  return json(await previewPlan(node, wish));
};

const uninstall: Endpoint = async (to, { query }) =>
  json(await removeFromNode(to, query.get("force") === "true"));

/** What the daemon answers on its socket. The CNI path is the stub's; `/v1/...` is podnetctl's. */
const endpoints: Readonly<Record<string, Endpoint>> = {
  "POST /cni": dispatch,
  "GET /healthz": health,
  "GET /readyz": ready,
  "GET /metrics": metrics,
  "GET /v1/attachments": list,
  "POST /v1/gc": collect,
  "POST /v1/resolve": resolve,
  "POST /v1/uninstall": uninstall,
  ...operatorEndpoints,
};

/** What it answers on the metrics address: nothing that changes anything. */
export const publicEndpoints: ReadonlySet<string> = new Set([
  "GET /healthz",
  "GET /readyz",
  "GET /metrics",
]);

/** Answers any request of the socket; `only` bounds what there is. Never rejects. */
export async function route(
  to: Dispatch,
  request: Request,
  only?: ReadonlySet<string>,
): Promise<Answer> {
  const name = `${request.method} ${request.path}`;
  const endpoint = Object.hasOwn(endpoints, name) ? endpoints[name] : undefined;
  if (endpoint === undefined || (only !== undefined && !only.has(name))) {
    return fault(404, `answer "${name}": podnetd has no such endpoint`);
  }
  try {
    return await endpoint(to, request);
  } catch (error) {
    return fault(400, errorText(error), error);
  }
}

function fault(status: number, msg: string, error?: unknown): Answer {
  const { code, details } = error instanceof CniError ? error : { code: 6, details: undefined };
  return { status, body: JSON.stringify({ cniVersion: "1.1.0", code, msg, details }) };
}
