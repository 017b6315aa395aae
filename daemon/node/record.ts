import { z } from "zod";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniResult } from "../../lib/cni/types.ts";

/**
 * The record of one CNI ADD: everything that DEL, CHECK and GC need, so that they ask nobody else. Written before the first
 * effect (phase `adding`, the intent), again with the result, and removed when everything is given back.
 */

const jsonObject = z.custom<JsonObject>(
  (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  "must be an object",
);
const result = z.custom<CniResult>(
  (value) => typeof value === "object" && value !== null && "interfaces" in value && "ips" in value,
  "must be a result with interfaces and ips",
);

const attachmentRecord = z.object({
  /** The network as people know it, and as `podNetwork` tags it. */
  network: z.string(),
  ifName: z.string(),
  default: z.boolean(),
  /** The network configuration list, the bytes that ADD saw. */
  conflist: z.string(),
  /** Capability arguments, before they are reduced to what a plugin declares. */
  capabilityArgs: jsonObject,
  /** The selection's `cni-args`. */
  cniArgs: jsonObject.optional(),
  result: result.optional(),
  /** The device that it has, which no other attachment gets until it is given back. */
  device: z.object({ resource: z.string(), id: z.string() }).optional(),
  /** Its device information file, deleted with it. */
  deviceInfoFile: z.string().optional(),
  /** What that file said after ADD. */
  deviceInfo: jsonObject.optional(),
  /** What plugins must remember (see PluginState), by their place in the list. */
  states: z.record(z.string(), jsonObject).default({}),
  /** Places in the list whose plugin runs as an executable although podnet has the type: one made the attachment, and one can undo it. */
  external: z.array(z.number()).optional(),
});

/** Of a sandbox that somebody else attached: what is to be done once all of it is given back. */
const inheritance = z.object({
  /** Files of theirs that say what is attached, to be removed. */
  files: z.array(z.string()),
  /** A file of theirs that could not be read whole, to be kept for a person. */
  torn: z.string().optional(),
});

export const sandboxRecord = z.object({
  version: z.literal(1),
  containerId: z.string().min(1),
  ifName: z.string().min(1),
  netns: z.string().optional(),
  /** SO_NETNS_COOKIE of the namespace, decimal: inodes are reused at once. */
  netnsCookie: z.string().optional(),
  bootId: z.string(),
  /** The CNI network name of podnet's own configuration, for GC. */
  cniNetwork: z.string(),
  /** CNI_ARGS as the runtime gave it. */
  cniArgs: z.string(),
  cniPath: z.array(z.string()),
  pod: z.object({
    namespace: z.string().optional(),
    name: z.string().optional(),
    uid: z.string().optional(),
  }),
  created: z.string(),
  phase: z.enum(["adding", "attached", "deleting"]),
  attachments: z.array(attachmentRecord),
  /** Networks of the selection that other providers attach. */
  leftAlone: z
    .array(z.object({ network: z.string(), provider: z.string(), ifName: z.string() }))
    .optional(),
  /** Why the latest attempt to give it back did not finish. */
  fault: z.string().optional(),
  /** When giving it back began, RFC 3339. */
  deleting: z.string().optional(),
  inherited: inheritance.optional(),
});

export type AttachmentRecord = z.infer<typeof attachmentRecord>;
export type SandboxRecord = z.infer<typeof sandboxRecord>;
export type RecordKey = Pick<SandboxRecord, "containerId" | "ifName">;
