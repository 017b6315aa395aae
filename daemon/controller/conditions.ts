import { isJsonObject, type JsonObject } from "../../lib/base/json.ts";

/** A condition that podnet has an opinion on. */
export interface Condition {
  readonly type: "Ready" | "ParamsReady" | "InUse";
  readonly status: "True" | "False";
  /** One word for programs. */
  readonly reason: string;
  readonly message: string;
}

/** Of one object: the schema's limits. */
const mostConditions = 8;
const longestMessage = 2_000;

export interface ConditionsInput {
  /** As the object has them, everybody's. */
  readonly present: readonly JsonObject[];
  readonly wanted: readonly Condition[];
  readonly generation: number;
  /** RFC 3339 */
  readonly now: string;
}

/**
 * The whole list as it should be: podnet's conditions brought up to date in their places, everybody else's as they are. undefined:
 * it is so already. lastTransitionTime changes with the status only. Where the list has no more room, what is informational is
 * left out first: `wanted` begins with what matters most.
 */
export function mergeConditions(input: ConditionsInput): readonly JsonObject[] | undefined {
  const { present, wanted } = input;
  const byType = new Map(wanted.map((condition) => [condition.type as unknown, condition]));
  let isSame = true;
  const merged = present.map((old) => {
    const condition = byType.get(old["type"]);
    if (condition === undefined) return old;
    byType.delete(old["type"]);
    const made = conditionObject(condition, old, input);
    if (made === old) return old;
    isSame = false;
    return made;
  });
  for (const condition of byType.values()) {
    if (merged.length >= mostConditions) break;
    merged.push(conditionObject(condition, undefined, input));
    isSame = false;
  }
  return isSame ? undefined : merged;
}

function conditionObject(
  { type, status, reason, message }: Condition,
  old: JsonObject | undefined,
  { generation, now }: ConditionsInput,
): JsonObject {
  const text = message.slice(0, longestMessage);
  const isOld =
    old !== undefined &&
    old["status"] === status &&
    old["reason"] === reason &&
    (old["message"] ?? "") === text &&
    old["observedGeneration"] === generation;
  if (isOld) return old;
  const since = old?.["status"] === status ? old["lastTransitionTime"] : undefined;
  return {
    type,
    status,
    reason,
    message: text,
    observedGeneration: generation,
    lastTransitionTime: typeof since === "string" ? since : now,
  };
}

/** The condition of that type as somebody wrote it; undefined: there is none. */
export function findCondition(
  conditions: readonly JsonObject[],
  type: string,
): { readonly status: string; readonly reason: string; readonly message: string } | undefined {
  const found = conditions.find((one) => isJsonObject(one) && one["type"] === type);
  if (found === undefined) return undefined;
  const text = (key: string) => (typeof found[key] === "string" ? found[key] : "");
  return { status: text("status"), reason: text("reason"), message: text("message") };
}
