import { createHash } from "node:crypto";

/**
 * The name of the node's end of an attachment's veth pair: `veth` and 11 hexadecimal digits that follow from the attachment alone. So
 * DEL finds what ADD made without asking anybody, also when the pod's end was renamed or its namespace is gone.
 */
export function hostVethName(containerId: string, ifName: string): string {
  return `veth${digest(`${containerId}\0${ifName}`).slice(0, 11)}`;
}

/** The name of the bridge's end of the veth pair that gives a VLAN of a bridge its gateway. */
export function vlanPortName(gatewayName: string): string {
  return `veth${digest(gatewayName).slice(0, 11)}`;
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Whether the kernel takes the text as an interface name (dev_valid_name in net/core/dev.c). */
export function isInterfaceName(text: string): boolean {
  return /^[^\s/:]{1,15}$/.test(text) && text !== "." && text !== "..";
}
