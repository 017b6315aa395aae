import type { Attributes, AttributeWriter } from "./attributes.ts";
import type { LinkChange, XdpState } from "./model.ts";

/**
 * IFLA_XDP of linux/if_link.h, nested: what program sees a link's packets first.
 *
 *   to the kernel    IFLA_XDP_FD i32 (-1: none), IFLA_XDP_FLAGS u32
 *   from the kernel  IFLA_XDP_ATTACHED u8, IFLA_XDP_PROG_ID u32
 */
const FD = 1;
const ATTACHED = 2;
const FLAGS = 3;
const PROGRAM_ID = 4;

/** Writes the inside of IFLA_XDP. */
export function emitXdp(
  writer: AttributeWriter,
  { fd, flags }: NonNullable<LinkChange["xdp"]>,
): AttributeWriter {
  return writer.attributeU32(FD, fd >>> 0).attributeU32(FLAGS, flags);
}

/** Reads IFLA_XDP; undefined when no program is attached. */
export function parseXdp(xdp: Attributes | undefined): XdpState | undefined {
  const attached = xdp?.u8(ATTACHED) ?? 0;
  return attached === 0 ? undefined : { attached, program: xdp?.u32(PROGRAM_ID) };
}
