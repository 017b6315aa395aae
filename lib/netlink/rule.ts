import {
  bitsOf,
  type Cidr,
  formatCidr,
  formatIp,
  type IpFamily,
  ipFromBytes,
  networkOf,
  parseCidr,
  withPrefix,
} from "../base/ip.ts";
import { AF_INET, AF_INET6 } from "./address.ts";
import { Attributes, AttributeWriter, NetlinkDecodeError } from "./attributes.ts";
import type { Rule, RuleSpec } from "./model.ts";

/**
 * Policy routing rules (RTM_NEWRULE and friends; linux/fib_rules.h struct fib_rule_hdr):
 *
 *   0        1         2         3     4       5      7        8       12
 *   | family | dst len | src len | tos | table | zero | action | flags | attributes |
 */
const HEADER = 12;
const FRA = {
  dst: 1,
  src: 2,
  iifName: 3,
  priority: 6,
  fwmark: 10,
  table: 15,
  oifName: 17,
} as const;
const FR_ACT_TO_TBL = 1;

/** The body of RTM_NEWRULE and RTM_DELRULE: look up in a table. Host bits of the prefixes are cleared. Throws an IpError. */
export function emitRule(spec: RuleSpec): Buffer {
  const source = prefix(spec.source);
  const destination = prefix(spec.destination);
  const writer = new AttributeWriter()
    .u8(spec.family === 4 ? AF_INET : AF_INET6)
    .u8(destination?.prefixLength ?? 0)
    .u8(source?.prefixLength ?? 0)
    .u8(0)
    .u8(spec.table > 255 ? 0 : spec.table)
    .u16(0)
    .u8(FR_ACT_TO_TBL)
    .u32(0);
  if (destination !== undefined) writer.attributeIp(FRA.dst, formatIp(destination));
  if (source !== undefined) writer.attributeIp(FRA.src, formatIp(source));
  emitSelectors(writer, spec);
  if (spec.table > 255) writer.attributeU32(FRA.table, spec.table);
  return writer.finish();
}

/** Everything (`0.0.0.0/0`) is said by saying nothing. */
function prefix(text: string | undefined): Cidr | undefined {
  const cidr = text === undefined ? undefined : networkOf(parseCidr(text));
  return cidr === undefined || cidr.prefixLength === 0 ? undefined : cidr;
}

function emitSelectors(writer: AttributeWriter, spec: RuleSpec): void {
  if (spec.iifName !== undefined) writer.attributeText(FRA.iifName, spec.iifName);
  if (spec.oifName !== undefined) writer.attributeText(FRA.oifName, spec.oifName);
  if (spec.priority !== undefined) writer.attributeU32(FRA.priority, spec.priority);
  if (spec.mark !== undefined) writer.attributeU32(FRA.fwmark, spec.mark);
}

/** The body of the RTM_GETRULE dump of one family. */
export function emitRuleDump(family: IpFamily): Buffer {
  return new AttributeWriter()
    .u8(family === 4 ? AF_INET : AF_INET6)
    .u8(0)
    .u16(0)
    .u32(0)
    .u32(0)
    .finish();
}

/** The body of an RTM_NEWRULE from the kernel; undefined for a family that is not IP. Throws a NetlinkDecodeError. */
export function parseRule(body: Buffer): Rule | undefined {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("rule", `${body.length} bytes are too few`);
  const kernelFamily = body.readUInt8(0);
  if (kernelFamily !== AF_INET && kernelFamily !== AF_INET6) return undefined;
  const family = kernelFamily === AF_INET ? 4 : 6;
  const found = new Attributes(body.subarray(HEADER), "rule");
  return {
    family,
    priority: found.u32(FRA.priority),
    table: found.u32(FRA.table) ?? body.readUInt8(4),
    source: prefixOf(family, body.readUInt8(2), found.bytes(FRA.src)),
    destination: prefixOf(family, body.readUInt8(1), found.bytes(FRA.dst)),
    iifName: found.text(FRA.iifName),
    oifName: found.text(FRA.oifName),
    mark: found.u32(FRA.fwmark),
  };
}

function prefixOf(family: IpFamily, length: number, bytes: Buffer | undefined): string | undefined {
  if (bytes === undefined) return undefined;
  if (bytes.length * 8 !== bitsOf(family) || length > bitsOf(family)) {
    throw new NetlinkDecodeError("rule", "a prefix does not fit its family");
  }
  return formatCidr(withPrefix(ipFromBytes(bytes), length));
}
