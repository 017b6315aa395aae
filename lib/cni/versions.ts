import { type CniVerb, type CniVersion, cniVersions } from "./types.ts";

/** What a configuration without `cniVersion` means (as the CNI project's Go library reads it). */
export const impliedCniVersion: CniVersion = "0.1.0";

/** The version of the specification that first had a verb ("CHECK" came with 0.4.0, "GC" and "STATUS" with 1.1.0). */
export const verbSince: Readonly<Record<CniVerb, CniVersion>> = {
  ADD: "0.1.0",
  DEL: "0.1.0",
  VERSION: "0.1.0",
  CHECK: "0.4.0",
  STATUS: "1.1.0",
  GC: "1.1.0",
};

/** Whether podnet speaks this version. */
export function isSupportedVersion(version: string): version is CniVersion {
  return (cniVersions as readonly string[]).includes(version);
}

/** Negative when `a` is older than `b`, 0 when they are the same. */
export function compareVersions(a: CniVersion, b: CniVersion): number {
  return cniVersions.indexOf(a) - cniVersions.indexOf(b);
}

/** Whether `version` is `since` or newer. */
export function versionAtLeast(version: CniVersion, since: CniVersion): boolean {
  return compareVersions(version, since) >= 0;
}

/** Whether a configuration of this version may be called with the verb. */
export function verbAllowed(verb: CniVerb, version: CniVersion): boolean {
  return versionAtLeast(version, verbSince[verb]);
}

/**
 * The newest version that the configuration offers and podnet speaks; entries that podnet does not know (newer ones) are
 * passed over. undefined when none is left (CNI 1.1.0, "Network configuration format", `cniVersions`).
 */
export function chooseVersion(offered: readonly string[]): CniVersion | undefined {
  return cniVersions.findLast((version) => offered.includes(version));
}
