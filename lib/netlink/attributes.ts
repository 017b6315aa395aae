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

/**
 * The attributes of a message by type. Types that nobody asks for stay in it. A repeated type keeps its last value. Only their places are
 * noted: a link has some sixty, of which a reader wants a few.
 */
export class Attributes {
  readonly #what: string;
  readonly #bytes: Buffer;
  readonly #places = new Map<number, Place>();

  constructor(bytes: Buffer, what: string) {
    this.#what = what;
    this.#bytes = bytes;
    walk(bytes, what, (type, place) => this.#places.set(type, place));
  }

  /** The types that are there, known or not. */
  types(): number[] {
    return [...this.#places.keys()];
  }

  has(type: number): boolean {
    return this.#places.has(type);
  }

  bytes(type: number): Buffer | undefined {
    const place = this.#places.get(type);
    return place === undefined ? undefined : this.#bytes.subarray(place.start, place.end);
  }

  u8(type: number): number | undefined {
    const at = this.#sized(type, 1);
    return at === undefined ? undefined : this.#bytes.readUInt8(at);
  }

  u16(type: number): number | undefined {
    const at = this.#sized(type, 2);
    return at === undefined ? undefined : this.#bytes.readUInt16LE(at);
  }

  u16BigEndian(type: number): number | undefined {
    const at = this.#sized(type, 2);
    return at === undefined ? undefined : this.#bytes.readUInt16BE(at);
  }

  u32(type: number): number | undefined {
    const at = this.#sized(type, 4);
    return at === undefined ? undefined : this.#bytes.readUInt32LE(at);
  }

  i32(type: number): number | undefined {
    const at = this.#sized(type, 4);
    return at === undefined ? undefined : this.#bytes.readInt32LE(at);
  }

  /** Text up to its first zero byte. */
  text(type: number): string | undefined {
    const bytes = this.bytes(type);
    return bytes === undefined ? undefined : textOf(bytes);
  }

  mac(type: number): string | undefined {
    const bytes = this.bytes(type);
    return bytes === undefined || bytes.length === 0 ? undefined : formatMac(bytes);
  }

  ip(type: number): string | undefined {
    const bytes = this.bytes(type);
    if (bytes === undefined) return undefined;
    if (bytes.length !== 4 && bytes.length !== 16) throw this.#wrongLength(type, bytes.length);
    return formatIp(ipFromBytes(bytes));
  }

  nested(type: number, what: string): Attributes | undefined {
    const bytes = this.bytes(type);
    return bytes === undefined ? undefined : new Attributes(bytes, what);
  }

  /** Where the value begins, when it is there. */
  #sized(type: number, length: number): number | undefined {
    const place = this.#places.get(type);
    if (place === undefined) return undefined;
    const found = place.end - place.start;
    if (found < length) throw this.#wrongLength(type, found);
    return place.start;
  }

  #wrongLength(type: number, length: number): NetlinkDecodeError {
    return new NetlinkDecodeError(this.#what, `attribute ${type} has ${length} bytes`);
  }
}

/** Where a value begins, and ends, in the bytes of the attributes. */
interface Place {
  readonly start: number;
  readonly end: number;
}

/** All attributes in order, repeated types included (lists are nested attributes of one type). Throws a NetlinkDecodeError. */
export function listAttributes(bytes: Buffer, what: string): [type: number, value: Buffer][] {
  const found: [number, Buffer][] = [];
  walk(bytes, what, (type, { start, end }) => found.push([type, bytes.subarray(start, end)]));
  return found;
}

function walk(bytes: Buffer, what: string, see: (type: number, place: Place) => void): void {
  let at = 0;
  while (bytes.length - at >= NLA_HEADER) {
    const length = bytes.readUInt16LE(at);
    if (length < NLA_HEADER || at + length > bytes.length) {
      throw new NetlinkDecodeError(what, `attribute at byte ${at} has length ${length}`);
    }
    const place = { start: at + NLA_HEADER, end: at + length };
    see(bytes.readUInt16LE(at + 2) & NLA_TYPE_MASK, place);
    at += (length + 3) & ~3;
  }
}

/** Text up to its first zero byte. */
export function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString("utf8", 0, end < 0 ? bytes.length : end);
}

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** Lower case with colons, whatever the length (InfiniBand has 20 bytes). */
export function formatMac(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += text === "" ? hex[byte] : `:${hex[byte]}`;
  return text;
}

/** Throws a TypeError that quotes what is no hardware address. */
export function macToBytes(mac: string): Buffer {
  if (!/^[0-9a-f]{2}(:[0-9a-f]{2})*$/i.test(mac))
    throw new TypeError(`hardware address "${mac}": not bytes separated by colons`);
  return Buffer.from(mac.replaceAll(":", ""), "hex");
}

/** The same object without its undefined values: absent, not undefined, is how the model says that nothing was reported. */
export function present<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const found: Partial<T> = {};
  for (const key of Object.keys(value) as (keyof T)[]) {
    if (value[key] !== undefined) found[key] = value[key];
  }
  return found as { [K in keyof T]?: Exclude<T[K], undefined> };
}
