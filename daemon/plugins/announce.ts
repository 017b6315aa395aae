import * as libc from "../../lib/base/libc.ts";
import type { CniIp } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import {
  ETH_ARP,
  ETH_IPV6,
  gratuitousArp,
  type Mac,
  macBytes,
  openPacketSocket,
  packetAddress,
  unsolicitedAdvertisement,
} from "./packets.ts";
import type { Sandbox } from "./plugin.ts";

const broadcastMac: Mac = new Uint8Array(6).fill(0xff);
const allNodesMac: Mac = Uint8Array.of(0x33, 0x33, 0, 0, 0, 1);

/**
 * Tells the neighbours who has the addresses now, by gratuitous ARP and unsolicited neighbour advertisements, so that nobody goes on sending to the
 * pod that had an address before. Best effort: an interface that can't send yet, or is no Ethernet, is no error.
 */
export function announce(sandbox: Sandbox, link: Link, ips: readonly CniIp[]): void {
  const mac = macBytes(link.mac);
  if (mac === undefined) return;
  for (const ip of ips) {
    const address = ip.address.replace(/\/\d+$/, "");
    if (address.includes(":")) {
      send(sandbox, link, {
        ethertype: ETH_IPV6,
        to: allNodesMac,
        packet: unsolicitedAdvertisement(mac, address),
      });
    } else {
      send(sandbox, link, {
        ethertype: ETH_ARP,
        to: broadcastMac,
        packet: gratuitousArp(mac, address),
      });
    }
  }
}

function send(
  sandbox: Sandbox,
  link: Link,
  frame: { readonly ethertype: number; readonly to: Mac; readonly packet: Buffer },
): void {
  try {
    const fd = openPacketSocket(sandbox.netns, link, frame.ethertype);
    try {
      libc.sendTo(fd, frame.packet, packetAddress(link, frame.ethertype, frame.to));
    } finally {
      libc.closeFd(fd);
    }
  } catch (error) {
    if (!(error instanceof libc.SystemError)) throw error;
  }
}
