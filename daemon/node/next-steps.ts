import { cniCode } from "../../lib/cni/errors.ts";

/** What to do about each error code, as docs/errors.md has it too (a test compares them). */
const steps: Readonly<Record<keyof typeof cniCode, string>> = {
  incompatibleVersion: "use 0.4.0 or newer for CHECK, 1.1.0 for STATUS and GC",
  unsupportedField: "the message names it",
  unknownContainer: "nothing; the runtime deletes and retries",
  invalidEnvironment:
    "correct the variable that the message names; where the interface exists, give it another name or remove what made it",
  ioFailure: "the message says which and why",
  decodingFailure: "the message says where",
  invalidNetworkConfig: "the message names network and field",
  invalidNetns: "CNI_NETNS_OVERRIDE=1 if the node's own is meant",
  tryAgainLater: "the runtime retries; see the daemon's log",
  pluginNotAvailable: "the message says what is missing",
  limitedConnectivity: "as 50",
  podNetworkMissing: "create it, or correct the pod's selection",
  podNetworkNotReady: "spec.enabled, or its parameters",
  nadMissing: "create it",
  capabilityUnsupported: "add capabilities to the plugin, or drop the request",
  namespaceNotAllowed: "ask for a grant",
  noDeviceLeft: "request the resource in the pod; free the device",
  selectionInvalid: "the message names entry and field",
  delegateFailed: "its stderr is in details",
  addressUnavailable: "widen the range, or free the address",
  internal: "report it with the daemon's log line",
};

/** The name of an error code, and what to do about it; a code of somebody else's plugin has neither. */
export function nextStep(code: number): { readonly name: string; readonly step: string } {
  for (const [name, number] of Object.entries(cniCode)) {
    if (number === code) return { name, step: steps[name as keyof typeof cniCode] };
  }
  return { name: "of the plugin", step: "see the plugin's own documentation" };
}
