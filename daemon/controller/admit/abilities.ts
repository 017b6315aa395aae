import { isJsonObject } from "../../../lib/base/json.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";

/** What a server can do that others can't. */
export interface Abilities {
  /** `v1.31.2`, for people. */
  readonly version: string;
  /** Pods may have scheduling gates: from 1.27 on, where they are on unless somebody switched them off. */
  readonly schedulingGates: boolean;
}

/**
 * Asks the server. Its version decides: with scheduling gates switched off (which 1.27 to 1.29 can) the server drops the field, and a pod
 * is as on an older server. Rejects with a KubeError when it can't be asked.
 */
export async function askAbilities(client: KubeClient): Promise<Abilities> {
  return abilitiesOf(await client.request({ path: "/version", timeout: 5_000 }));
}

/** Reads `/version`; a version that can't be read is an old one. Providers write minors as in `27+`. */
export function abilitiesOf(answer: unknown): Abilities {
  const { gitVersion, major, minor } = isJsonObject(answer) ? answer : {};
  const numbers = [major, minor].map((text) =>
    Number.parseInt(typeof text === "string" ? text : "", 10),
  );
  const [first = Number.NaN, second = Number.NaN] = numbers;
  return {
    version: typeof gitVersion === "string" ? gitVersion.slice(0, 64) : "",
    schedulingGates: first > 1 || (first === 1 && second >= 27),
  };
}
