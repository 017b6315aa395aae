import { formatIp, ipFromBytes, ipToBytes, parseIp } from "../base/ip.ts";

/**
 * Netlink attributes (linux/netlink.h, struct nlattr), in host byte order, which is little-endian on every machine that Node runs on
 * for us:
 *
 *   0        2        4                     4 + n
 *   | length |  type  | payload (n bytes)   | padding to 4 |
 *
 * `length` counts its own 4 bytes and no padding; the two highest bits of `type` are flags (nested, network byte order).
 */
const NLA_HEADER = 4;
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;

/** Bytes from the kernel that are no valid message. `what` names the part. */
export class NetlinkDecodeError extends Error {
  override readonly name = "NetlinkDecodeError";

  constructor(what: string, reason: string, options?: ErrorOptions) {
    super(`parse ${what}: ${reason}`, options);
  }
}

/** Writes fixed headers and attributes into a growing buffer. Each call returns the writer, for chains. */
export class AttributeWriter {
  // From Node's pool, which an allocation of its own for each message would miss.
  #buffer = Buffer.allocUnsafe(256).fill(0);
  #length = 0;
  readonly #nests: number[] = [];

  /** May replace the buffer: callers reserve first and take the buffer then. */
  #reserve(size: number): number {
    const at = this.#length;
    const needed = at + size;
    if (needed > this.#buffer.length) {
      const larger = Buffer.alloc(Math.max(this.#buffer.length * 2, needed));
      this.#buffer.copy(larger, 0, 0, at);
      this.#buffer = larger;
    }
    this.#length = needed;
    return at;
  }

  u8(value: number): this {
    const at = this.#reserve(1);
    this.#buffer.writeUInt8(value, at);
    return this;
  }

  u16(value: number): this {
    const at = this.#reserve(2);
    this.#buffer.writeUInt16LE(value, at);
    return this;
  }

  u32(value: number): this {
    const at = this.#reserve(4);
    this.#buffer.writeUInt32LE(value >>> 0, at);
    return this;
  }

  raw(bytes: Uint8Array): this {
    const at = this.#reserve(bytes.length);
    this.#buffer.set(bytes, at);
    return this;
  }

  /** Zero bytes up to the next multiple of 4. */
  pad(): this {
    this.#reserve(-this.#length & 3);
    return this;
  }

  attribute(type: number, payload: Uint8Array): this {
    return this.u16(NLA_HEADER + payload.length)
      .u16(type)
      .raw(payload)
      .pad();
  }

  /** An attribute without payload, whose presence says it all. */
  flag(type: number): this {
    return this.u16(NLA_HEADER).u16(type);
  }

  attributeU8(type: number, value: number): this {
    return this.u16(NLA_HEADER + 1)
      .u16(type)
      .u8(value)
      .pad();
  }

  attributeU16(type: number, value: number): this {
    return this.u16(NLA_HEADER + 2)
      .u16(type)
      .u16(value)
      .pad();
  }

  /** A 16-bit number in network byte order (ethertypes, ports). */
  attributeU16BigEndian(type: number, value: number): this {
    return this.attributeU16(type, ((value & 0xff) << 8) | (value >>> 8));
  }

  attributeU32(type: number, value: number): this {
    return this.u16(NLA_HEADER + 4)
      .u16(type)
      .u32(value);
  }

  /** UTF-8 text with the closing zero byte. */
  attributeText(type: number, text: string): this {
    return this.attribute(type, Buffer.from(`${text}\0`));
  }

  /** A hardware address: `02:00:00:00:00:01`. */
  attributeMac(type: number, mac: string): this {
    return this.attribute(type, macToBytes(mac));
  }

  /** An IP address as 4 or 16 bytes. */
  attributeIp(type: number, address: string): this {
    return this.attribute(type, ipToBytes(parseIp(address)));
  }

  /** Begins a nested attribute; what is written until `join` is inside. */
  fork(type: number, flags = NLA_F_NESTED): this {
    this.#nests.push(this.#length);
    return this.u16(0).u16(type | flags);
  }

  /** Ends the latest `fork`. */
  join(): this {
    const at = this.#nests.pop();
    if (at === undefined) throw new Error("write netlink attributes: join without fork");
    this.#buffer.writeUInt16LE(this.#length - at, at);
    return this;
  }

  /** The bytes so far. The writer must not be used afterwards. */
  finish(): Buffer {
    if (this.#nests.length > 0) throw new Error("write netlink attributes: fork without join");
    return this.#buffer.subarray(0, this.#length);
  }
}

/** The attributes of a message by type. Types that nobody asks for stay in it. A repeated type keeps its last value. */
export class Attributes {
  readonly #what: string;
  readonly #values = new Map<number, Buffer>();

  constructor(bytes: Buffer, what: string) {
    this.#what = what;
    for (const [type, value] of listAttributes(bytes, what)) this.#values.set(type, value);
  }

  /** The types that are there, known or not. */
  types(): number[] {
    return [...this.#values.keys()];
  }

  has(type: number): boolean {
    return this.#values.has(type);
  }

  bytes(type: number): Buffer | undefined {
    return this.#values.get(type);
  }

  u8(type: number): number | undefined {
    return this.#sized(type, 1)?.readUInt8(0);
  }

  u16(type: number): number | undefined {
    return this.#sized(type, 2)?.readUInt16LE(0);
  }

  u16BigEndian(type: number): number | undefined {
    return this.#sized(type, 2)?.readUInt16BE(0);
  }

  u32(type: number): number | undefined {
    return this.#sized(type, 4)?.readUInt32LE(0);
  }

  i32(type: number): number | undefined {
    return this.#sized(type, 4)?.readInt32LE(0);
  }

  /** Text up to its first zero byte. */
  text(type: number): string | undefined {
    const bytes = this.#values.get(type);
    return bytes === undefined ? undefined : textOf(bytes);
  }

  mac(type: number): string | undefined {
    const bytes = this.#values.get(type);
    return bytes === undefined || bytes.length === 0 ? undefined : formatMac(bytes);
  }

  ip(type: number): string | undefined {
    const bytes = this.#values.get(type);
    if (bytes === undefined) return undefined;
    if (bytes.length !== 4 && bytes.length !== 16) throw this.#wrongLength(type, bytes);
    return formatIp(ipFromBytes(bytes));
  }

  nested(type: number, what: string): Attributes | undefined {
    const bytes = this.#values.get(type);
    return bytes === undefined ? undefined : new Attributes(bytes, what);
  }

  #sized(type: number, length: number): Buffer | undefined {
    const bytes = this.#values.get(type);
    if (bytes !== undefined && bytes.length < length) throw this.#wrongLength(type, bytes);
    return bytes;
  }

  #wrongLength(type: number, bytes: Buffer): NetlinkDecodeError {
    return new NetlinkDecodeError(this.#what, `attribute ${type} has ${bytes.length} bytes`);
  }
}

/** All attributes in order, repeated types included (lists are nested attributes of one type). Throws a NetlinkDecodeError. */
export function listAttributes(bytes: Buffer, what: string): [type: number, value: Buffer][] {
  const found: [number, Buffer][] = [];
  let at = 0;
  while (bytes.length - at >= NLA_HEADER) {
    const length = bytes.readUInt16LE(at);
    if (length < NLA_HEADER || at + length > bytes.length) {
      throw new NetlinkDecodeError(what, `attribute at byte ${at} has length ${length}`);
    }
    found.push([
      bytes.readUInt16LE(at + 2) & NLA_TYPE_MASK,
      bytes.subarray(at + NLA_HEADER, at + length),
    ]);
    at += (length + 3) & ~3;
  }
  return found;
}

/** Text up to its first zero byte. */
export function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString("utf8", 0, end < 0 ? bytes.length : end);
}

/** Lower case with colons, whatever the length (InfiniBand has 20 bytes). */
export function formatMac(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(":");
}

/** Throws a TypeError that quotes what is no hardware address. */
export function macToBytes(mac: string): Buffer {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2})*$/i.test(mac))
    throw new TypeError(`hardware address "${mac}": not bytes separated by colons`);
  return Buffer.from(mac.replaceAll(":", ""), "hex");
}

/** The same object without its undefined values: absent, not undefined, is how the model says that nothing was reported. */
export function present<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(value).filter(([, entry]) => entry !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
