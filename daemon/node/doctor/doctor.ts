import { errorText } from "../../../lib/base/errors.ts";
import { podnetVersion } from "../../../lib/base/version.ts";
import type { DaemonConfig } from "../config.ts";
import type { KubeNode } from "../kube/node.ts";
import { multusContainers } from "../multus/cache-inherit.ts";
import { knownConflists } from "../resolve.ts";
import { clusterFindings } from "./cluster.ts";
import { type Finding, ok, orFine, warn } from "./finding.ts";
import { kernelFindings } from "./kernel.ts";
import { findLeaks, type Leak, type LeakParts } from "./leaks.ts";
import { type NetworkParts, networkFindings } from "./networks.ts";
import { pendingFindings, unreadableFindings } from "./pending.ts";
import { interfaceFindings, podFindings } from "./pods.ts";

/** What a node is examined with: a daemon's own, or what can be had without one. */
export interface DoctorParts extends LeakParts, NetworkParts {
  readonly kube?: KubeNode;
}

/** Where things are on this node; podnetctl looks at them itself. */
export type NodePlaces = Pick<
  DaemonConfig,
  "socket" | "stateDir" | "cniBinDir" | "cniConfDir" | "networksDir"
>;

/** What the daemon found. */
export interface Examination {
  readonly version: string;
  readonly places: NodePlaces;
  readonly findings: readonly Finding[];
}

/** Examines everything that the daemon itself knows of. Changes nothing, and no part that fails hides the others. */
export async function examine(parts: DoctorParts): Promise<Examination> {
  const { config } = parts;
  const { socket, stateDir, cniBinDir, cniConfDir, networksDir } = config;
  const places = { socket, stateDir, cniBinDir, cniConfDir, networksDir };
  return { version: podnetVersion, places, findings: await findingsOf(parts) };
}

async function findingsOf(parts: DoctorParts): Promise<Finding[]> {
  const { store, config, kube } = parts;
  const nodeName = config.nodeName ?? process.env["NODE_NAME"] ?? "";
  const checks: Record<string, () => Promise<Finding[]> | Finding[]> = {
    records: () => unreadableFindings(store, config.stateDir),
    pending: () => pendingFindings(store.all()),
    interfaces: () => interfaceFindings(parts),
    leaks: async () => leakFindings(await findLeaks(parts)),
    multus: () => foreignFindings(parts),
    networks: () => networkFindings(parts),
    kernel: async () => kernelFindings(parts.host, await knownConflists(parts.networks)),
    ...(kube === undefined
      ? {}
      : {
          cluster: () => clusterFindings(kube),
          pods: () => podFindings(kube, nodeName, parts),
        }),
  };
  const findings: Finding[] = [];
  for (const [name, check] of Object.entries(checks)) {
    try {
      findings.push(...(await check()));
    } catch (cause) {
      findings.push(warn(name, `can't be examined: ${errorText(cause)}`, "see the reason"));
    }
  }
  return findings;
}

function leakFindings(leaks: readonly Leak[]): Finding[] {
  const todo = "podnetctl gc frees it";
  const findings = leaks.map(({ text }) => warn("leaks", text, todo));
  return orFine(findings, ok("leaks", "nothing is kept for nobody"));
}

async function foreignFindings({ config }: DoctorParts): Promise<Finding[]> {
  const { length } = await multusContainers(config);
  if (length === 0) return [];
  const text = `${length} sandbox${length === 1 ? "" : "es"} of a previous Multus in "${config.multusCacheDir}"`;
  return [ok("multus", `${text}: given back by their DEL`)];
}
