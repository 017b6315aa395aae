import { Attributes, AttributeWriter, NetlinkDecodeError } from "./attributes.ts";

/**
 * Identifiers of other network namespaces, as one of them numbers those that it has links to (RTM_GETNSID; linux/net_namespace.h):
 *
 *   0        1     4
 *   | family | pad | attributes |
 */
const HEADER = 4;
const NSID = 1;
const FD = 3;

/** The body of the RTM_GETNSID that asks for the namespace of a descriptor. */
export function emitNetnsIdQuery(fd: number): Buffer {
  return new AttributeWriter().u32(0).attributeU32(FD, fd).finish();
}

/** The body of an RTM_NEWNSID from the kernel; undefined: the namespace has no number there. Throws a NetlinkDecodeError. */
export function parseNetnsId(body: Buffer): number | undefined {
  if (body.length < HEADER)
    throw new NetlinkDecodeError("namespace id", `${body.length} bytes are too few`);
  const id = new Attributes(body.subarray(HEADER), "namespace id").i32(NSID);
  return id === undefined || id < 0 ? undefined : id;
}
