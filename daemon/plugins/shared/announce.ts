import * as libc from "../../../lib/base/libc.ts";
import { SystemError } from "../../../lib/base/system-error.ts";
import type { CniIp } from "../../../lib/cni/types.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { Sandbox } from "../plugin.ts";
import {
  closePacketSocket,
  ETH_ARP,
  ETH_IPV6,
  gratuitousArp,
  type Mac,
  macBytes,
  openSendSocket,
  packetAddress,
  unsolicitedAdvertisement,
} from "./packets.ts";

const broadcastMac: Mac = new Uint8Array(6).fill(0xff);
const allNodesMac: Mac = Uint8Array.of(0x33, 0x33, 0, 0, 0, 1);

/**
 * Tells the neighbours who has the addresses now, by gratuitous ARP and unsolicited neighbour advertisements, so that nobody goes on sending to the
 * pod that had an address before. Best effort: an interface that can't send yet, or is no Ethernet, is no error.
 */
export function announce(sandbox: Sandbox, link: Link, ips: readonly CniIp[]): void {
  const mac = macBytes(link.mac);
  if (mac === undefined || ips.length === 0) return;
  ignoreRefusal(() => {
    const fd = openSendSocket(sandbox.netns);
    try {
      for (const ip of ips) {
        const { ethertype, to, packet } = frameFor(mac, ip.address.replace(/\/\d+$/, ""));
        ignoreRefusal(() => libc.sendTo(fd, packet, packetAddress(link, ethertype, to)));
      }
    } finally {
      closePacketSocket(fd);
    }
  });
}

interface Frame {
  readonly ethertype: number;
  readonly to: Mac;
  readonly packet: Buffer;
}

function frameFor(mac: Mac, address: string): Frame {
  return address.includes(":")
    ? { ethertype: ETH_IPV6, to: allNodesMac, packet: unsolicitedAdvertisement(mac, address) }
    : { ethertype: ETH_ARP, to: broadcastMac, packet: gratuitousArp(mac, address) };
}

function ignoreRefusal(work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
  }
}
