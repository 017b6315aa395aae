import { isJsonObject } from "../base/json.ts";

/**
 * Whether two JSON values say the same, the order of keys aside. A key whose value is undefined is absent. Without recursion: what is
 * compared may be nested deeper than a stack.
 */
export function sameJson(one: unknown, other: unknown): boolean {
  const pairs: [unknown, unknown][] = [[one, other]];
  for (let pair = pairs.pop(); pair !== undefined; pair = pairs.pop()) {
    const parts = partsOf(...pair);
    if (parts === undefined) return false;
    for (const part of parts) pairs.push(part);
  }
  return true;
}

/** What must be the same inside of two values for them to be so; undefined: they differ already. */
function partsOf(one: unknown, other: unknown): [unknown, unknown][] | undefined {
  if (Array.isArray(one) && Array.isArray(other)) {
    if (one.length !== other.length) return undefined;
    return one.map((item: unknown, index) => [item, other[index]]);
  }
  if (isJsonObject(one) && isJsonObject(other)) {
    const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
    return [...keys].map((key) => [ownValue(one, key), ownValue(other, key)]);
  }
  return Object.is(one, other) ? [] : undefined;
}

function ownValue(object: object, key: string): unknown {
  return Object.hasOwn(object, key) ? Reflect.get(object, key) : undefined;
}

/** Whether lists and objects lie deeper in each other than that. Without recursion, too. */
export function nestsDeeperThan(value: unknown, levels: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > levels) return true;
    level = level.flatMap((one) =>
      typeof one === "object" && one !== null ? Object.values(one) : [],
    );
  }
  return false;
}
