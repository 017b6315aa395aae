import { cniCode } from "../../../lib/cni/errors.ts";

const reasons: Readonly<Record<number, string>> = {
  [cniCode.podNetworkMissing]: "NetworkNotFound",
  [cniCode.podNetworkNotReady]: "NetworkNotReady",
  [cniCode.nadMissing]: "NetworkNotFound",
  [cniCode.capabilityUnsupported]: "CapabilityUnsupported",
  [cniCode.namespaceNotAllowed]: "NamespaceNotAllowed",
  [cniCode.noDeviceLeft]: "NoDeviceLeft",
  [cniCode.selectionInvalid]: "SelectionInvalid",
};

/** The reason of an event about an ADD that failed with this CNI code. */
export function failureReason(code: number, message: string): string {
  if (code === cniCode.addressUnavailable) {
    return /exhausted|no (free )?address/i.test(message) ? "AddressExhausted" : "DuplicateAddress";
  }
  return reasons[code] ?? "AttachFailed";
}
