import type { CniVerb } from "./types.ts";

/**
 * The variables that a verb can't do without (CNI 1.1.0, section 2, "Parameters"). The specification asks for CNI_PATH with GC only,
 * the CNI project's Go library with every verb.
 */
export const requiredVariables: Readonly<Record<CniVerb, readonly string[]>> = {
  ADD: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
  CHECK: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
  DEL: ["CNI_CONTAINERID", "CNI_IFNAME"],
  STATUS: [],
  GC: ["CNI_PATH"],
  VERSION: [],
};
