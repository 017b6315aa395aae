import { CniError } from "./errors.ts";
import { type Invocation, invokePlugin } from "./invoke.ts";
import { parseJsonObject } from "./json-text.ts";
import { newestCniVersion } from "./types.ts";

/** How the plugin is started. */
export type Probe = Pick<Invocation, "type" | "cniPath" | "helper" | "limits" | "signal">;

/**
 * Asks a plugin which versions it speaks (CNI 1.1.0, "VERSION"). One that refuses the command is older than the command: it speaks 0.1.0.
 * Rejects with a CniError when it can't be run or answers with something else.
 */
export async function probeVersions(probe: Probe): Promise<readonly string[]> {
  const config = { cniVersion: newestCniVersion };
  try {
    const { stdout } = await invokePlugin({ ...probe, verb: "VERSION", config });
    return supportedVersions(stdout);
  } catch (error) {
    if (error instanceof CniError && /unknown CNI_COMMAND/.test(error.message)) return ["0.1.0"];
    throw error;
  }
}

function supportedVersions(stdout: string): readonly string[] {
  const answer = parseJsonObject(stdout, "answer to VERSION");
  const list: unknown = answer["supportedVersions"];
  if (!Array.isArray(list)) return [];
  return list.filter((item: unknown) => typeof item === "string");
}
