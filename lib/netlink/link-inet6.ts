import type { AttributeWriter } from "./attributes.ts";
import type { LinkChange } from "./model.ts";

const AF_INET6 = 10;
const IFLA_INET6_ADDR_GEN_MODE = 8;
/** IN6_ADDR_GEN_MODE_* of linux/if_link.h. */
const modes = { eui64: 0, none: 1 } as const;

/** Goes into IFLA_AF_SPEC. Gives the writer back. */
export function emitIpv6Mode(
  writer: AttributeWriter,
  mode: NonNullable<LinkChange["ipv6AddressMode"]>,
): AttributeWriter {
  return writer.fork(AF_INET6).attributeU8(IFLA_INET6_ADDR_GEN_MODE, modes[mode]).join();
}
