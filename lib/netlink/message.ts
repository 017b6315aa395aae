import { Attributes, NetlinkDecodeError } from "./attributes.ts";

/**
 * Netlink messages (linux/netlink.h, struct nlmsghdr):
 *
 *   0          4      6       8          12       16
 *   | length   | type | flags | sequence | port id | body | padding to 4 |
 *
 * A datagram carries one or several. `length` counts the header and no padding.
 */
export const NLMSG_HEADER = 16;
export const messageFlag = {
  request: 0x1,
  multi: 0x2,
  ack: 0x4,
  echo: 0x8,
  dumpInterrupted: 0x10,
  dump: 0x300,
  replace: 0x100,
  exclusive: 0x200,
  create: 0x400,
  append: 0x800,
  /** On an error or DONE: the request is not quoted after its header, and TLVs follow. */
  capped: 0x100,
  ackTlvs: 0x200,
} as const;

export const messageType = {
  noop: 1,
  error: 2,
  done: 3,
  overrun: 4,
  newLink: 16,
  delLink: 17,
  getLink: 18,
  setLink: 19,
  newAddress: 20,
  delAddress: 21,
  getAddress: 22,
  newRoute: 24,
  delRoute: 25,
  getRoute: 26,
  newNeighbour: 28,
  delNeighbour: 29,
  getNeighbour: 30,
  newRule: 32,
  delRule: 33,
  getRule: 34,
  getNetnsId: 90,
  newLinkProperty: 108,
  delLinkProperty: 109,
} as const;

/** A message to send: the connection gives it its sequence number. */
export interface Request {
  readonly type: number;
  readonly flags: number;
  readonly body: Uint8Array;
}

export interface Message {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly body: Buffer;
}

/** What the kernel answers a request with: errno 0 is success. Texts and offsets come with NETLINK_EXT_ACK. */
export interface Acknowledgement {
  /** Positive, or 0. */
  readonly errno: number;
  readonly text: string | undefined;
  /** Where in the request the fault is, in bytes from its header. */
  readonly offset: number | undefined;
}

const NLMSGERR_ATTR_MSG = 1;
const NLMSGERR_ATTR_OFFS = 2;

/** Frames one message, padded to 4 bytes. */
export function emitMessage(request: Request, sequence: number): Buffer {
  const length = NLMSG_HEADER + request.body.length;
  const bytes = Buffer.alloc((length + 3) & ~3);
  bytes.writeUInt32LE(length, 0);
  bytes.writeUInt16LE(request.type, 4);
  bytes.writeUInt16LE(request.flags | messageFlag.request, 6);
  bytes.writeUInt32LE(sequence, 8);
  bytes.set(request.body, NLMSG_HEADER);
  return bytes;
}

/** All messages of a datagram. Throws a NetlinkDecodeError. */
export function parseMessages(datagram: Buffer): Message[] {
  const messages: Message[] = [];
  let at = 0;
  while (at < datagram.length) {
    const length = datagram.length - at < NLMSG_HEADER ? 0 : datagram.readUInt32LE(at);
    if (length < NLMSG_HEADER || at + length > datagram.length) {
      throw new NetlinkDecodeError(
        "netlink datagram",
        `message at byte ${at} is cut or has a wrong length`,
      );
    }
    messages.push({
      type: datagram.readUInt16LE(at + 4),
      flags: datagram.readUInt16LE(at + 6),
      sequence: datagram.readUInt32LE(at + 8),
      body: datagram.subarray(at + NLMSG_HEADER, at + length),
    });
    at += (length + 3) & ~3;
  }
  return messages;
}

/**
 * The verdict in an NLMSG_ERROR (struct nlmsgerr: errno, the request's header, its body unless capped, TLVs) or in the
 * NLMSG_DONE that ends a dump (errno, TLVs).
 */
export function parseAcknowledgement(message: Message): Acknowledgement {
  const { body, flags } = message;
  const isDone = message.type === messageType.done;
  if (isDone && body.length < 4) return { errno: 0, text: undefined, offset: undefined };
  if (body.length < (isDone ? 4 : 4 + NLMSG_HEADER)) {
    throw new NetlinkDecodeError("netlink acknowledgement", `${body.length} bytes are too few`);
  }
  const errno = 0 - body.readInt32LE(0);
  if ((flags & messageFlag.ackTlvs) === 0) return { errno, text: undefined, offset: undefined };
  const attributes = new Attributes(
    body.subarray(isDone ? 4 : tlvOffset(body, flags)),
    "extended acknowledgement",
  );
  return {
    errno,
    text: attributes.text(NLMSGERR_ATTR_MSG),
    offset: attributes.u32(NLMSGERR_ATTR_OFFS),
  };
}

function tlvOffset(body: Buffer, flags: number): number {
  const quoted = (flags & messageFlag.capped) === 0 ? body.readUInt32LE(4) : NLMSG_HEADER;
  return 4 + ((Math.max(quoted, NLMSG_HEADER) + 3) & ~3);
}
