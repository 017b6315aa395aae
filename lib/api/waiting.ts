import { quote } from "./names.ts";
import { type NetworkRef, refName, type Selection } from "./selection.ts";

/** Whether pods can be attached; `why` follows a colon. */
export type Readiness = { readonly ready: true } | { readonly ready: false; readonly why: string };

/** What is known of the objects that pods wait for; undefined: there is none. */
export interface NetworkStates {
  readonly podNetwork: (name: string) => Readiness | undefined;
  readonly attachment: (
    namespace: string,
    name: string,
  ) => { readonly podNetworkName: string | undefined; readonly readiness: Readiness } | undefined;
}

/** Why a pod waits: one network that is not as it should be. */
export interface Offender {
  /** As podnetd's events name it. */
  readonly reason: "NetworkNotFound" | "NetworkNotReady" | "NetworkRepeated";
  readonly message: string;
}

/** The active rules (spec A.3.2) on a pod's list: each network exists, is ready, and is there once, attachments looked through. */
export function offenders(selections: readonly Selection[], states: NetworkStates): Offender[] {
  const found: Offender[] = [];
  const seen = new Map<string, string>();
  for (const { ref } of selections) {
    const { offender, network, way } = look(ref, states);
    if (offender !== undefined) found.push(offender);
    const first = network === undefined ? undefined : seen.get(network);
    if (network === undefined) continue;
    if (first === undefined) seen.set(network, way);
    else found.push(repeatedly(network, first, way));
  }
  return found;
}

interface Look {
  readonly offender: Offender | undefined;
  /** The PodNetwork behind the entry, as far as it is known, and how the entry comes to it. */
  readonly network: string | undefined;
  readonly way: string;
}

/** NADs don't get here: a list of podnet's dialect has none. */
function look(ref: NetworkRef, states: NetworkStates): Look {
  const { name } = ref;
  if (ref.kind === "podNetwork") {
    const offender = judge(`PodNetwork ${quote(name)}`, states.podNetwork(name));
    return { offender, network: name, way: "directly" };
  }
  const title = `PodNetworkAttachment ${quote(refName(ref))}`;
  const state = states.attachment(ref.namespace, name);
  const offender = judge(title, state?.readiness);
  return { offender, network: state?.podNetworkName, way: `through ${title}` };
}

function judge(title: string, readiness: Readiness | undefined): Offender | undefined {
  if (readiness === undefined) return { reason: "NetworkNotFound", message: `${title} not found` };
  if (readiness.ready) return undefined;
  return { reason: "NetworkNotReady", message: `${title} is not ready: ${readiness.why}` };
}

function repeatedly(network: string, first: string, second: string): Offender {
  const ways = `${first} and ${second}`;
  const message = `PodNetwork ${quote(network)} is referenced more than once: ${ways}`;
  return { reason: "NetworkRepeated", message };
}
