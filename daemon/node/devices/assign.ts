import { quote } from "../../../lib/api/names.ts";
import type { Json } from "../../../lib/base/json.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { PlannedAttachment } from "../plan.ts";
import { podText } from "../pods.ts";
import type { AttachmentRecord, SandboxRecord } from "../record.ts";

/** Ids of the devices that a pod was given, by resource: sorted, each once. */
export type Devices = ReadonlyMap<string, readonly string[]>;

/** The attachment's device, with the id among its capability arguments. */
export type WithDevice = PlannedAttachment & Pick<AttachmentRecord, "device">;

/**
 * Gives each attachment that needs one the next device of its resource, in their order: none is given twice, nor one that a record has (those of
 * before a reboot have none: it gave all devices back). An attachment whose selection names a device gets that one. Throws a CniError that names network, resource and pod: code 105 when none
 * is left, 11 when the one that is left is on its way back from a sandbox that is being deleted.
 */
export function assignDevices(
  attachments: readonly PlannedAttachment[],
  devices: Devices,
  held: { readonly records: readonly SandboxRecord[]; readonly bootId: string },
): readonly WithDevice[] {
  const holders = holdersOf(held.records.filter(({ bootId }) => bootId === held.bootId));
  const taken = new Set<string>();
  // Those that name one first: it must not be given to another by the order.
  const ids = new Map<PlannedAttachment, string>();
  for (const named of [true, false]) {
    for (const attachment of attachments) {
      const { resourceName: resource } = attachment;
      if (resource === undefined || named !== (askedFor(attachment) !== undefined)) continue;
      const id = choose({ attachment, resource, given: devices.get(resource) ?? [] }, (one) => {
        const key = keyOf(resource, one);
        return taken.has(key) ? "taken" : holders.get(key);
      });
      taken.add(keyOf(resource, id));
      ids.set(attachment, id);
    }
  }
  return attachments.map((attachment) => {
    const id = ids.get(attachment);
    const { resourceName: resource, capabilityArgs } = attachment;
    if (id === undefined || resource === undefined) return attachment;
    const device = { resource, id };
    return { ...attachment, device, capabilityArgs: { ...capabilityArgs, deviceID: id } };
  });
}

interface Choice {
  readonly attachment: PlannedAttachment;
  readonly resource: string;
  /** Ids that the pod was given. */
  readonly given: readonly string[];
}

type HolderOf = (id: string) => SandboxRecord | "taken" | undefined;

function choose({ attachment, resource, given }: Choice, holderOf: HolderOf): string {
  const asked = askedFor(attachment);
  const where = `attach network "${attachment.network}" (${attachment.ifName}): resource "${resource}"`;
  if (asked !== undefined && (typeof asked !== "string" || !given.includes(asked))) {
    const message = `${where}: device ${quote(String(asked))} was not given to the pod (it has ${listed(given)})`;
    throw new CniError(cniCode.noDeviceLeft, message);
  }
  const candidates = typeof asked === "string" ? [asked] : given;
  const free = candidates.find((id) => holderOf(id) === undefined);
  if (free !== undefined) return free;
  throw noneLeft(where, candidates, holderOf);
}

function noneLeft(where: string, candidates: readonly string[], holderOf: HolderOf): CniError {
  if (candidates.length === 0) {
    const message = `${where}: the pod was given no such device: request the resource in a container, once for each interface`;
    return new CniError(cniCode.noDeviceLeft, message);
  }
  const returning = candidates.find((id) => isReturning(holderOf(id)));
  if (returning !== undefined) {
    const message = `${where}: device "${returning}" is on its way back from an older sandbox: try again`;
    return new CniError(cniCode.tryAgainLater, message);
  }
  const who = candidates.map((id) => `"${id}" ${holderText(holderOf(id))}`);
  const message = `${where}: no device is left: ${who.join(", ")}: request one for each interface`;
  return new CniError(cniCode.noDeviceLeft, message);
}

function isReturning(holder: ReturnType<HolderOf>): boolean {
  return typeof holder === "object" && holder.phase === "deleting";
}

function holderText(holder: ReturnType<HolderOf>): string {
  if (typeof holder !== "object") return "is another interface's of this pod";
  return `is in use by container "${holder.containerId}" (pod "${podText(holder.pod) ?? "unknown"}")`;
}

function holdersOf(records: readonly SandboxRecord[]): ReadonlyMap<string, SandboxRecord> {
  const holders = new Map<string, SandboxRecord>();
  for (const record of records) {
    for (const { device } of record.attachments) {
      if (device !== undefined) holders.set(keyOf(device.resource, device.id), record);
    }
  }
  return holders;
}

function askedFor({ capabilityArgs }: PlannedAttachment): Json | undefined {
  return capabilityArgs["deviceID"];
}

function keyOf(resource: string, id: string): string {
  return `${resource} ${id}`;
}

function listed(ids: readonly string[]): string {
  return ids.length === 0 ? "none" : ids.map((id) => `"${id}"`).join(", ");
}
