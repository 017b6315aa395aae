import { errorCode } from "../base/errors.ts";
import { Attributes, AttributeWriter } from "./attributes.ts";
import { messageFlag } from "./message.ts";
import type { Netfilter } from "./netfilter.ts";

/**
 * Tracked connections (linux/netfilter/nfnetlink_conntrack.h), over nfnetlink: only what it takes to forget some. A connection is found by the tuple of its
 * first packet:
 *
 *   CTA_TUPLE_ORIG { CTA_TUPLE_IP { addresses }, CTA_TUPLE_PROTO { number, ports } }, CTA_ZONE
 */
const IPCTNL_MSG_CT_GET = 0x101;
const IPCTNL_MSG_CT_DELETE = 0x102;
const CTA_TUPLE_ORIG = 1;
const CTA_ZONE = 18;
const CTA_FILTER = 25;
const CTA_TUPLE_PROTO = 2;
const CTA_PROTO_NUM = 1;
const CTA_PROTO_DST_PORT = 3;
const CTA_FILTER_ORIG_FLAGS = 1;
const CTA_FILTER_REPLY_FLAGS = 2;
/** CTA_FILTER_F_CTA_PROTO_NUM and CTA_FILTER_F_CTA_PROTO_DST_PORT of net/netfilter/nf_internals.h. */
const FILTER_BY_PROTOCOL_AND_PORT = (1 << 3) | (1 << 5);
const AF_INET = 2;
const AF_INET6 = 10;

/**
 * Forgets the connections of a protocol whose first packet went to this port, IPv4 and IPv6. Idempotent; needs Linux 5.8.
 * Rejects with a NetlinkError.
 */
export async function forgetConnections(
  netfilter: Netfilter,
  to: { readonly protocol: number; readonly port: number },
): Promise<void> {
  const operation = `forget connections to port ${to.port}`;
  for (const family of [AF_INET, AF_INET6]) {
    const question = {
      type: IPCTNL_MSG_CT_GET,
      flags: messageFlag.dump,
      body: emitFilter(family, to),
    };
    for (const { body } of await netfilter.ask(operation, question)) {
      const request = { type: IPCTNL_MSG_CT_DELETE, flags: 0, body: emitSame(family, body) };
      await netfilter.ask(operation, request).catch(unlessGone);
    }
  }
}

function unlessGone(error: unknown): void {
  if (errorCode(error) !== "ENOENT") throw error;
}

/** A dump's filter by protocol and destination port. */
export function emitFilter(
  family: number,
  { protocol, port }: { readonly protocol: number; readonly port: number },
): Buffer {
  return header(family)
    .fork(CTA_TUPLE_ORIG)
    .fork(CTA_TUPLE_PROTO)
    .attributeU8(CTA_PROTO_NUM, protocol)
    .attributeU16BigEndian(CTA_PROTO_DST_PORT, port)
    .join()
    .join()
    .fork(CTA_FILTER)
    .attributeU32(CTA_FILTER_ORIG_FLAGS, FILTER_BY_PROTOCOL_AND_PORT)
    .attributeU32(CTA_FILTER_REPLY_FLAGS, 0)
    .join()
    .finish();
}

/** Names the connection that a dump reported by its own tuple and zone. */
function emitSame(family: number, body: Buffer): Buffer {
  const attributes = new Attributes(body.subarray(4), "tracked connection");
  const writer = header(family);
  const tuple = attributes.bytes(CTA_TUPLE_ORIG);
  if (tuple !== undefined) writer.fork(CTA_TUPLE_ORIG).raw(tuple).join();
  const zone = attributes.bytes(CTA_ZONE);
  if (zone !== undefined) writer.attribute(CTA_ZONE, zone);
  return writer.finish();
}

/** struct nfgenmsg: family, version, resource id. */
function header(family: number): AttributeWriter {
  return new AttributeWriter().u8(family).u8(0).u16(0);
}
