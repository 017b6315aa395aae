import type { JsonObject } from "../../lib/base/json.ts";
import type { ObjectEvent } from "../../lib/kube/events.ts";
import { type Condition, findCondition } from "./conditions.ts";

/** Milliseconds between two writes that only bring a count of users up to date. */
const countEvery = 5_000;
const mostRemembered = 20_000;

/** Whether nothing but the number of users is new. */
export function isCountOnly(present: readonly JsonObject[], wanted: readonly Condition[]): boolean {
  return wanted.every(({ type, status, reason, message }) => {
    const old = findCondition(present, type);
    if (old === undefined || old.status !== status || old.reason !== reason) return false;
    return type === "InUse" || old.message === message;
  });
}

/** Lets the count of an object's users be written now and then: a thousand pods that start at once are not a thousand writes. */
export class CountPauses {
  readonly #written = new Map<string, number>();

  /** Milliseconds to wait until that object's (its uid's) count may be written; 0: it may be now, and is taken to be. */
  before(uid: string, now: number = performance.now()): number {
    const last = this.#written.get(uid);
    if (last !== undefined && now - last < countEvery) return Math.ceil(countEvery - (now - last));
    if (this.#written.size >= mostRemembered) this.#written.clear();
    this.#written.set(uid, now);
    return 0;
  }
}

/** What people are told when readiness changes; undefined: nothing new. */
export function readyEvent(
  before: { readonly status: string; readonly reason: string } | undefined,
  { status, reason, message }: Condition,
): Pick<ObjectEvent, "type" | "reason" | "message"> | undefined {
  if (before?.status === status && before.reason === reason) return undefined;
  const isMeant = status === "True" || ["Deleting", "AdministrativelyDisabled"].includes(reason);
  return { type: isMeant ? "Normal" : "Warning", reason, message };
}
