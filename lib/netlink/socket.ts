import * as libc from "../base/libc.ts";
import type { Netns } from "../base/netns.ts";

const NETLINK_ROUTE = 0;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
/** struct sockaddr_nl: family u16, pad u16, port u32 (0: the kernel picks one), groups u32. */
const ADDRESS_LENGTH = 12;
/** The kernel never makes a larger datagram for a reader of this size (NLMSG_GOODSIZE and dumps are below). */
const RECEIVE_SIZE = 65536;

// Synchronous reads are over before the next one begins, so that one buffer serves all sockets.
const receiveBuffer = Buffer.alloc(RECEIVE_SIZE);
// Those of pool threads, which are used again: allocating one for each read would leave the heap in pieces.
const spareBuffers: Buffer[] = [];

/**
 * A non-blocking netlink socket with extended acknowledgements and strict checking. It belongs to the namespace that it was
 * opened in for its whole life, and keeps that namespace alive: close it.
 */
export class NetlinkSocket {
  #fd: number;
  #leases = 0;
  #closed = false;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /**
   * Opens a socket in the namespace (default: the process' own) that receives the multicast groups; `protocol` is a NETLINK_* number (default:
   * NETLINK_ROUTE). Throws a SystemError.
   */
  static open(
    netns: Netns | undefined,
    groups: readonly number[] = [],
    protocol: number = NETLINK_ROUTE,
  ): NetlinkSocket {
    const open = () => openFd(groups, protocol);
    return new NetlinkSocket(netns === undefined ? open() : netns.run(open));
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The descriptor, for readiness watching. */
  get fd(): number {
    return this.#fd;
  }

  /** Sends on the calling thread: blocks it while somebody else holds RTNL. Throws a SystemError. */
  send(bytes: Uint8Array): void {
    libc.send(this.#fd, bytes);
  }

  /** Sends on a pool thread. Rejects with a SystemError. */
  async sendAsync(bytes: Uint8Array): Promise<void> {
    using _lease = this.lease();
    await libc.sendAsync(this.#fd, bytes);
  }

  /** One datagram, or undefined when there is none. Throws a SystemError (ENOBUFS: some were lost). */
  receive(): Buffer | undefined {
    const length = libc.recv(this.#fd, receiveBuffer);
    return length === undefined ? undefined : Buffer.from(whole(receiveBuffer, length));
  }

  /** As receive, on a pool thread: reading a dump makes the kernel produce its next part, for which it may need RTNL. */
  async receiveAsync(): Promise<Buffer | undefined> {
    using _lease = this.lease();
    const buffer = spareBuffers.pop() ?? Buffer.alloc(RECEIVE_SIZE);
    try {
      const length = await libc.recvAsync(this.#fd, buffer);
      return length === undefined ? undefined : Buffer.from(whole(buffer, length));
    } finally {
      spareBuffers.push(buffer);
    }
  }

  /**
   * Keeps the descriptor open, whatever `close` says, until the lease is disposed of: a number that a pool thread still uses must not be
   * given to anybody else.
   */
  lease(): Disposable {
    this.#leases += 1;
    return {
      [Symbol.dispose]: () => {
        this.#leases -= 1;
        this.#closeIfIdle();
      },
    };
  }

  /** Idempotent. Takes effect when the last lease ends. */
  close(): void {
    this.#closed = true;
    this.#closeIfIdle();
  }

  #closeIfIdle(): void {
    if (!this.#closed || this.#leases > 0 || this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    libc.closeFd(fd);
  }
}

function whole(buffer: Buffer, length: number): Buffer {
  if (length > buffer.length)
    throw new Error(`receive from netlink: a datagram of ${length} bytes is too long`);
  return buffer.subarray(0, length);
}

function openFd(groups: readonly number[], protocol: number): number {
  const fd = libc.socket(libc.AF_NETLINK, libc.SOCK_RAW | libc.SOCK_NONBLOCK, protocol);
  try {
    for (const name of [NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK]) {
      libc.setSocketOption(fd, { level: SOL_NETLINK, name }, 1);
    }
    const address = Buffer.alloc(ADDRESS_LENGTH);
    address.writeUInt16LE(libc.AF_NETLINK, 0);
    libc.bindSocket(fd, address);
    for (const group of groups) {
      libc.setSocketOption(fd, { level: SOL_NETLINK, name: NETLINK_ADD_MEMBERSHIP }, group);
    }
    return fd;
  } catch (error) {
    libc.closeFd(fd);
    throw error;
  }
}
