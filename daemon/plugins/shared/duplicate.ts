import { setTimeout as delay } from "node:timers/promises";
import { ipToBytes, parseIp } from "../../../lib/base/ip.ts";
import * as libc from "../../../lib/base/libc.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { Sandbox } from "../plugin.ts";
import {
  advertisedMac,
  closePacketSocket,
  duplicateProbe,
  ETH_IPV6,
  multicastMac,
  openPacketSocket,
  packetAddress,
  solicitedNode,
} from "./packets.ts";

const waitMs = 300;
const everyMs = 10;

/**
 * The hardware address of who has an IPv6 address on the link, by asking as duplicate address detection does; undefined when nobody answers within 0.3 s.
 */
export async function findOwner(
  sandbox: Sandbox,
  link: Link,
  question: { readonly address: string; readonly signal: AbortSignal },
): Promise<string | undefined> {
  const { address, signal } = question;
  const fd = openPacketSocket(sandbox.netns, link, ETH_IPV6);
  try {
    const group = solicitedNode(ipToBytes(parseIp(address)));
    libc.sendTo(fd, duplicateProbe(address), packetAddress(link, ETH_IPV6, multicastMac(group)));
    const end = performance.now() + waitMs;
    while (performance.now() < end) {
      const owner = readOwner(fd, address);
      if (owner !== undefined) return owner;
      await delay(everyMs, undefined, { signal });
    }
    return undefined;
  } finally {
    closePacketSocket(fd);
  }
}

function readOwner(fd: number, address: string): string | undefined {
  const buffer = Buffer.alloc(2048);
  for (;;) {
    const length = libc.recv(fd, buffer);
    if (length === undefined) return undefined;
    const owner = advertisedMac(buffer.subarray(0, Math.min(length, buffer.length)), address);
    if (owner !== undefined) return owner;
  }
}
