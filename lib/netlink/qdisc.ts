import { Attributes, AttributeWriter, NetlinkDecodeError } from "./attributes.ts";

/**
 * Queueing disciplines and filters (linux/rtnetlink.h, struct tcmsg; linux/pkt_sched.h, linux/pkt_cls.h), the few that shape a pod's traffic:
 *
 *   0                4         8        12       16     20
 *   | family, padding | ifindex | handle | parent | info | attributes
 */
const TC_HEADER = 20;
const TCA_KIND = 1;
const TCA_OPTIONS = 2;
const TC_H_ROOT = 0xffffffff;
const TC_H_INGRESS = 0xfffffff1;
const ingressHandle = 0xffff0000;
const rootHandle = 0x00010000;
const TCA_TBF_PARMS = 1;
const TCA_TBF_RATE64 = 4;
const TCA_U32_CLASSID = 1;
const TCA_U32_SEL = 5;
const TCA_U32_ACT = 7;
const TC_U32_TERMINAL = 1;
const TCA_ACT_KIND = 1;
const TCA_ACT_OPTIONS = 2;
const TCA_MIRRED_PARMS = 2;
const TC_ACT_STOLEN = 4;
const TCA_EGRESS_REDIR = 1;
const ETH_P_ALL = 3;
/** Ticks of the packet scheduler in a microsecond (/proc/net/psched; PSCHED_SHIFT is 6 in every kernel since 2.6.31). */
const ticksPerMicrosecond = 15.625;
const largest = 0xffffffff;

/** A token bucket at the root of a link: what leaves by the link is held to `rate` bytes a second, after a burst of `burst` bytes. */
export interface TokenBucket {
  readonly rate: number;
  readonly burst: number;
  /** How long a packet may wait before it is dropped, in microseconds. */
  readonly latency: number;
}

/** What of a token bucket the kernel holds: bytes a second, bytes, scheduler ticks. */
export interface TokenBucketParameters {
  readonly rate: number;
  readonly limit: number;
  readonly buffer: number;
}

export interface Qdisc {
  readonly index: number;
  /** TCA_KIND: `tbf`, `ingress`, `noqueue`. */
  readonly kind: string;
  readonly handle: number;
  readonly parent: number;
  readonly tokenBucket: TokenBucketParameters | undefined;
}

/**
 * The numbers that the kernel is given. Of limit and buffer those that do not fit 32 bits are the largest that do: a burst of minutes at a low rate, as the
 * kubelet asks for, must not wrap to one that no packet fits in.
 */
export function tokenBucketParameters({
  rate,
  burst,
  latency,
}: TokenBucket): TokenBucketParameters {
  const microseconds = Math.floor((burst / rate) * 1e6);
  return {
    rate: Math.floor(rate),
    limit: Math.min(Math.floor((rate * latency) / 1e6 + burst), largest),
    buffer: Math.min(Math.floor(microseconds * ticksPerMicrosecond), largest),
  };
}

function header(
  index: number,
  at: { readonly handle?: number; readonly parent?: number; readonly info?: number },
): AttributeWriter {
  return new AttributeWriter()
    .u32(0)
    .u32(index)
    .u32(at.handle ?? 0)
    .u32(at.parent ?? 0)
    .u32(at.info ?? 0);
}

/** RTM_NEWQDISC: a token bucket at the root of a link. */
export function emitTokenBucket(index: number, bucket: TokenBucket): Buffer {
  const { rate, limit, buffer } = tokenBucketParameters(bucket);
  // struct tc_tbf_qopt: rate and peak rate (struct tc_ratespec, 12 bytes each), limit, buffer, mtu.
  const parameters = new AttributeWriter()
    .u32(0)
    .u32(0)
    .u32(Math.min(rate, largest))
    .u32(0)
    .u32(0)
    .u32(0)
    .u32(limit)
    .u32(buffer)
    .u32(0)
    .finish();
  const writer = header(index, { handle: rootHandle, parent: TC_H_ROOT })
    .attributeText(TCA_KIND, "tbf")
    .fork(TCA_OPTIONS, 0)
    .attribute(TCA_TBF_PARMS, parameters);
  if (rate > largest) writer.attribute(TCA_TBF_RATE64, u64(rate));
  return writer.join().finish();
}

function u64(value: number): Buffer {
  return Buffer.from(BigUint64Array.of(BigInt(value)).buffer);
}

/** RTM_NEWQDISC: what filters of arriving packets are attached to. */
export function emitIngress(index: number): Buffer {
  return header(index, { handle: ingressHandle, parent: TC_H_INGRESS })
    .attributeText(TCA_KIND, "ingress")
    .fork(TCA_OPTIONS, 0)
    .join()
    .finish();
}

/** RTM_NEWTFILTER: everything that arrives on a link leaves by another (u32 with a match of everything, action mirred). */
export function emitRedirect(index: number, to: number): Buffer {
  // struct tc_u32_sel (16 bytes: flags, offshift, nkeys, offsets) and one struct tc_u32_key (mask, value, offsets), which matches all.
  const selector = Buffer.alloc(32);
  selector[0] = TC_U32_TERMINAL;
  selector[2] = 1;
  // struct tc_mirred: index, capabilities, action, two counters, what to do, ifindex.
  const mirred = new AttributeWriter()
    .u32(0)
    .u32(0)
    .u32(TC_ACT_STOLEN)
    .u32(0)
    .u32(0)
    .u32(TCA_EGRESS_REDIR)
    .u32(to)
    .finish();
  const info = (1 << 16) | (ETH_P_ALL << 8);
  return header(index, { parent: ingressHandle, info })
    .attributeText(TCA_KIND, "u32")
    .fork(TCA_OPTIONS, 0)
    .attribute(TCA_U32_SEL, selector)
    .attributeU32(TCA_U32_CLASSID, rootHandle | 1)
    .fork(TCA_U32_ACT, 0)
    .fork(1, 0)
    .attributeText(TCA_ACT_KIND, "mirred")
    .fork(TCA_ACT_OPTIONS, 0)
    .attribute(TCA_MIRRED_PARMS, mirred)
    .join()
    .join()
    .join()
    .join()
    .finish();
}

/** RTM_GETQDISC, a dump: of one link where the kernel filters, else of all. */
export function emitQdiscDump(index: number): Buffer {
  return header(index, {}).finish();
}

/** RTM_GETTFILTER, a dump of what arrives on a link. */
export function emitIngressFilterDump(index: number): Buffer {
  return header(index, { parent: ingressHandle }).finish();
}

/** RTM_NEWQDISC. Throws a NetlinkDecodeError. */
export function parseQdisc(body: Buffer): Qdisc {
  const what = "qdisc";
  if (body.length < TC_HEADER)
    throw new NetlinkDecodeError(what, `${body.length} bytes are too few`);
  const attributes = new Attributes(body.subarray(TC_HEADER), what);
  const kind = attributes.text(TCA_KIND) ?? "";
  const options = kind === "tbf" ? attributes.nested(TCA_OPTIONS, what) : undefined;
  return {
    index: body.readInt32LE(4),
    kind,
    handle: body.readUInt32LE(8),
    parent: body.readUInt32LE(12),
    tokenBucket: options === undefined ? undefined : parseBucket(options),
  };
}

function parseBucket(options: Attributes): TokenBucketParameters | undefined {
  const parameters = options.bytes(TCA_TBF_PARMS);
  if (parameters === undefined || parameters.length < 36) return undefined;
  const rate64 = options.bytes(TCA_TBF_RATE64);
  return {
    rate: rate64?.length === 8 ? Number(rate64.readBigUInt64LE(0)) : parameters.readUInt32LE(8),
    limit: parameters.readUInt32LE(24),
    buffer: parameters.readUInt32LE(28),
  };
}

/** The link that a filter's first mirred action sends packets to; undefined for another filter. Throws a NetlinkDecodeError. */
export function parseRedirect(body: Buffer): number | undefined {
  const what = "filter";
  if (body.length < TC_HEADER)
    throw new NetlinkDecodeError(what, `${body.length} bytes are too few`);
  const options = new Attributes(body.subarray(TC_HEADER), what).nested(TCA_OPTIONS, what);
  const action = options?.nested(TCA_U32_ACT, what)?.nested(1, what);
  if (action?.text(TCA_ACT_KIND) !== "mirred") return undefined;
  const mirred = action.nested(TCA_ACT_OPTIONS, what)?.bytes(TCA_MIRRED_PARMS);
  return mirred === undefined || mirred.length < 28 ? undefined : mirred.readInt32LE(24);
}
