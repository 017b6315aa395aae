import { constants } from "node:os";
import koffi, { type KoffiFunc, type node } from "koffi";
import { SystemError } from "./system-error.ts";

/**
 * The one native boundary: the few libc calls that Node does not offer, through koffi. Everything here is a thin typed call
 * that throws a SystemError; what the calls mean for netlink, namespaces or locks is written elsewhere.
 * Symbols come from the running process, so that glibc and musl both serve.
 */
// A call through the pool takes a stack, which is cheap while one is at hand; more calls at once than koffi's default of 256 would throw.
koffi.config({ resident_async_pools: 32, max_async_calls: 4096 });
const libc = koffi.load(null);

type Pointer = Uint8Array | null;
const native = {
  socket: bind<(domain: number, type: number, protocol: number) => number>(
    "int socket(int domain, int type, int protocol)",
  ),
  bind: bind<(fd: number, address: Uint8Array, length: number) => number>(
    "int bind(int fd, const void *address, uint32_t length)",
  ),
  send: bind<(fd: number, bytes: Uint8Array, length: number, flags: number) => number>(
    "long send(int fd, const void *bytes, size_t length, int flags)",
  ),
  sendto: bind<
    (
      fd: number,
      bytes: Uint8Array,
      length: number,
      flags: number,
      address: Uint8Array,
      addressLength: number,
    ) => number
  >(
    "long sendto(int fd, const void *bytes, size_t length, int flags, const void *address, uint32_t addressLength)",
  ),
  recv: bind<(fd: number, bytes: Uint8Array, length: number, flags: number) => number>(
    "long recv(int fd, void *bytes, size_t length, int flags)",
  ),
  setsockopt: bind<
    (fd: number, level: number, name: number, value: Uint8Array, length: number) => number
  >("int setsockopt(int fd, int level, int name, const void *value, uint32_t length)"),
  getsockopt: bind<
    (fd: number, level: number, name: number, value: Uint8Array, length: Uint8Array) => number
  >("int getsockopt(int fd, int level, int name, void *value, void *length)"),
  getsockname: bind<(fd: number, address: Uint8Array, length: Uint8Array) => number>(
    "int getsockname(int fd, void *address, void *length)",
  ),
  setns: bind<(fd: number, type: number) => number>("int setns(int fd, int type)"),
  close: bind<(fd: number) => number>("int close(int fd)"),
  flock: bind<(fd: number, operation: number) => number>("int flock(int fd, int operation)"),
  getrusage: bind<(who: number, usage: Uint8Array) => number>(
    "int getrusage(int who, void *usage)",
  ),
  // The kernel's second ioctl argument is variadic in C, but every ABI that Node runs on passes one pointer the same way.
  ioctl: bind<(fd: number, request: number, argument: Pointer) => number>(
    "int ioctl(int fd, unsigned long request, void *argument)",
  ),
  ioctlValue: bind<(fd: number, request: number, value: number) => number>(
    "int ioctl(int fd, unsigned long request, unsigned long value)",
  ),
};

function bind<T extends (...args: never[]) => number>(definition: string): KoffiFunc<T> {
  return libc.func(definition) as unknown as KoffiFunc<T>;
}

/** Numbers of linux/socket.h, linux/sched.h, sys/file.h: what callers of this file pass. */
export const AF_UNIX = 1;
export const AF_INET = 2;
export const AF_INET6 = 10;
export const AF_NETLINK = 16;
export const AF_PACKET = 17;
export const SOCK_DGRAM = 2;
export const SOCK_RAW = 3;
export const SOCK_NONBLOCK = 0o4000;
export const SOCK_CLOEXEC = 0o2000000;
export const SOL_SOCKET = 1;
export const CLONE_NEWNET = 0x40000000;
const MSG_TRUNC = 0x20;
const SO_PEERCRED = 17;
const SO_NETNS_COOKIE = 71;
const LOCK_EXCLUSIVE_NONBLOCKING = 2 | 4;
const LOCK_UNLOCK = 8;
const RUSAGE_THREAD = 1;
/** Offset in struct rusage where long has 64 bits: two struct timeval and twelve longs are before it. */
const RU_NVCSW = 128;

function check(call: string, result: number): number {
  if (result < 0) throw new SystemError(call, koffi.errno());
  return result;
}

/** Opens a socket, close-on-exec always. Throws a SystemError. The caller closes it. */
export function socket(domain: number, type: number, protocol: number): number {
  return check("socket", native.socket(domain, type | SOCK_CLOEXEC, protocol));
}

/** Binds a socket to a `struct sockaddr` given as bytes. Throws a SystemError. */
export function bindSocket(fd: number, address: Uint8Array): void {
  check("bind", native.bind(fd, address, address.length));
}

/** Sends one datagram on a connected or netlink socket. Interrupted calls are repeated. Throws a SystemError. */
export function send(fd: number, bytes: Uint8Array): number {
  for (;;) {
    const sent = native.send(fd, bytes, bytes.length, 0);
    if (sent >= 0 || koffi.errno() !== constants.errno.EINTR) return check("send", sent);
  }
}

/**
 * Sends one datagram on a thread of libuv's pool: the event loop stays free while the kernel works.
 * The caller keeps `fd` open and `bytes` unchanged until the promise settles. Rejects with a SystemError.
 */
export function sendAsync(fd: number, bytes: Uint8Array): Promise<number> {
  return new Promise((resolve, reject) => {
    native.send.async(fd, bytes, bytes.length, 0, (error: unknown, sent: number) => {
      if (error !== null && error !== undefined) reject(toError(error));
      else if (sent < 0) reject(new SystemError("send", koffi.errno()));
      else resolve(sent);
    });
  });
}

/** Sends one datagram to a `struct sockaddr` given as bytes. Throws a SystemError. */
export function sendTo(fd: number, bytes: Uint8Array, address: Uint8Array): number {
  return check("sendto", native.sendto(fd, bytes, bytes.length, 0, address, address.length));
}

/**
 * Receives one datagram into `buffer` and returns its true length, which is larger than the buffer when it was cut.
 * undefined: a non-blocking socket has nothing. Throws a SystemError (ENOBUFS: datagrams were lost).
 */
export function recv(fd: number, buffer: Uint8Array): number | undefined {
  for (;;) {
    const length = native.recv(fd, buffer, buffer.length, MSG_TRUNC);
    if (length >= 0) return length;
    const errno = koffi.errno();
    if (errno === constants.errno.EAGAIN) return undefined;
    if (errno !== constants.errno.EINTR) throw new SystemError("recv", errno);
  }
}

/** As recv, on a thread of libuv's pool. The caller keeps `fd` open until the promise settles. */
export async function recvAsync(fd: number, buffer: Uint8Array): Promise<number | undefined> {
  for (;;) {
    const { length, errno } = await recvOnce(fd, buffer);
    if (length >= 0) return length;
    if (errno === constants.errno.EAGAIN) return undefined;
    if (errno !== constants.errno.EINTR) throw new SystemError("recv", errno);
  }
}

function recvOnce(fd: number, buffer: Uint8Array): Promise<{ length: number; errno: number }> {
  return new Promise((resolve, reject) => {
    native.recv.async(fd, buffer, buffer.length, MSG_TRUNC, (error: unknown, length: number) => {
      if (error !== null && error !== undefined) reject(toError(error));
      else resolve({ length, errno: koffi.errno() });
    });
  });
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Sets a socket option that is an int. Throws a SystemError. */
export function setSocketOption(
  fd: number,
  option: { level: number; name: number },
  value: number,
): void {
  const bytes = Buffer.from(Int32Array.of(value).buffer);
  check("setsockopt", native.setsockopt(fd, option.level, option.name, bytes, bytes.length));
}

/** Reads a socket option of `length` bytes. Throws a SystemError. */
export function getSocketOption(
  fd: number,
  option: { level: number; name: number },
  length: number,
): Buffer {
  const value = Buffer.alloc(length);
  const valueLength = Buffer.from(Uint32Array.of(length).buffer);
  check("getsockopt", native.getsockopt(fd, option.level, option.name, value, valueLength));
  return value;
}

/** The bytes of the `struct sockaddr` that a socket is bound to. Throws a SystemError. */
export function socketName(fd: number): Buffer {
  const address = Buffer.alloc(128);
  const length = Buffer.from(Uint32Array.of(address.length).buffer);
  check("getsockname", native.getsockname(fd, address, length));
  return address.subarray(0, new DataView(length.buffer, length.byteOffset).getUint32(0, true));
}

/** The cookie of the network namespace that a socket lives in: unique until reboot, never reused (SO_NETNS_COOKIE, Linux 5.14). */
export function netnsCookie(fd: number): bigint {
  return getSocketOption(fd, { level: SOL_SOCKET, name: SO_NETNS_COOKIE }, 8).readBigUInt64LE();
}

/** Who is at the other end of a unix socket (SO_PEERCRED). Throws a SystemError. */
export function peerCredentials(fd: number): {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
} {
  const bytes = getSocketOption(fd, { level: SOL_SOCKET, name: SO_PEERCRED }, 12);
  return { pid: bytes.readInt32LE(0), uid: bytes.readUInt32LE(4), gid: bytes.readUInt32LE(8) };
}

/** Moves the calling thread into another namespace. Only lib/base/netns.ts calls this. Throws a SystemError. */
export function setns(fd: number, type: number): void {
  check("setns", native.setns(fd, type));
}

/** Closes a descriptor. Throws a SystemError. */
export function closeFd(fd: number): void {
  check("close", native.close(fd));
}

/** Takes an exclusive flock without waiting. false: somebody else holds it. Throws a SystemError. */
export function tryLock(fd: number): boolean {
  if (native.flock(fd, LOCK_EXCLUSIVE_NONBLOCKING) === 0) return true;
  if (koffi.errno() === constants.errno.EAGAIN) return false;
  throw new SystemError("flock", koffi.errno());
}

/** Gives a flock back. Closing the descriptor does it too. Throws a SystemError. */
export function unlock(fd: number): void {
  check("flock", native.flock(fd, LOCK_UNLOCK));
}

const usage = Buffer.alloc(144);

/**
 * How often the calling thread has gone to sleep in the kernel to wait for something (`ru_nvcsw` of getrusage(2)). Being sent off the processor by other
 * threads is not counted.
 */
export function timesAsleep(): number {
  check("getrusage", native.getrusage(RUSAGE_THREAD, usage));
  return Number(usage.readBigInt64LE(RU_NVCSW));
}

/** ioctl with a struct given as bytes, which the kernel may change. Returns the call's value. Throws a SystemError. */
export function ioctl(fd: number, request: number, argument: Uint8Array): number {
  return check("ioctl", native.ioctl(fd, request, argument));
}

/** An ioctl whose argument is a number, not a place in memory. `value` fits into 32 bits. Throws a SystemError. */
export function ioctlValue(fd: number, request: number, value: number): number {
  return check("ioctl", native.ioctlValue(fd, request, value));
}

/** A watch on a descriptor's readability. Close it before the descriptor. */
export interface ReadinessWatch {
  /** Watches again after libuv stopped on an error. */
  restart(): void;
  /** Lets the process end while the watch is open. */
  unref(): void;
  close(): void;
}

/**
 * Calls `ready` on the event loop whenever the descriptor is readable. An error state (a netlink overrun) comes with `failed` true and
 * ends the watching until `restart`. `ready` must not throw.
 */
export function watchReadable(fd: number, ready: (failed: boolean) => void): ReadinessWatch {
  // koffi's types say (events), its code says (status, events).
  const callback = ((status: number) => ready(status < 0)) as unknown as (
    events: node.PollEvents,
  ) => void;
  const handle = koffi.node.poll(fd, { readable: true }, callback);
  return {
    restart: () => handle.start({ readable: true }, callback),
    unref: () => handle.unref(),
    close: () => handle.close(),
  };
}
