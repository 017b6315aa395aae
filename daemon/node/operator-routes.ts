import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import type { Dispatch } from "./dispatch.ts";
import { type ExplainTarget, explain } from "./explain.ts";
import { History } from "./explain-history.ts";
import { changeLogLevel } from "./log-level.ts";
import type { Answer, Request } from "./server.ts";

type Endpoint = (to: Dispatch, request: Request) => Promise<Answer>;

function json(value: unknown): Answer {
  return { status: 200, body: JSON.stringify(value) };
}

const target = z
  .object({
    pod: z.string().min(1).optional(),
    namespace: z.string().min(1).default("default"),
    container: z.string().min(1).optional(),
  })
  .transform(({ pod, namespace, container }, context): ExplainTarget => {
    if (pod !== undefined) return { namespace, name: pod };
    if (container !== undefined) return { containerId: container };
    context.addIssue({ code: "custom", message: "must name a pod or a container" });
    return z.NEVER;
  });

const explainOne: Endpoint = async ({ node, history, observer }, { query }) => {
  const asked = decode(target, Object.fromEntries(query), "explain request");
  const eventsOf = observer?.eventsOf?.bind(observer) ?? (() => []);
  return json(await explain({ node, history: history ?? new History(), eventsOf }, asked));
};

/** Loaded when somebody asks: what only doctors need takes no memory before. */
const doctor: Endpoint = async ({ node }) => {
  const { examine } = await import("./doctor/doctor.ts");
  return json(await examine(node));
};

const readLevel: Endpoint = async ({ node: { log } }) => json({ level: log.level });

const writeLevel: Endpoint = async ({ node: { log } }, { body }) =>
  json(changeLogLevel(log, JSON.parse(body.toString("utf8"))));

/** What podnetctl asks for people who look after a node. */
export const operatorEndpoints: Readonly<Record<string, Endpoint>> = {
  "GET /v1/doctor": doctor,
  "GET /v1/explain": explainOne,
  "GET /v1/log-level": readLevel,
  "POST /v1/log-level": writeLevel,
};
