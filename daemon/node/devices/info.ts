import type { JsonObject } from "../../../lib/base/json.ts";
import { isJsonObject } from "../../../lib/base/json.ts";
import type { Log } from "../../../lib/base/log.ts";
import { type Conflist, decodeConflist } from "../../../lib/cni/conflist.ts";
import { declares } from "../../../lib/cni/derive.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import {
  attachmentInfoPath,
  type DeviceInfo,
  deleteDeviceInfo,
  devicePluginInfoPath,
  readDeviceInfo,
  writeDeviceInfo,
} from "../../plugins/devices/device-info.ts";
import type { AttachmentRecord, RecordKey } from "../record.ts";

/** The capability by which a plugin is told where its attachment's device information file goes (spec B.5). */
export const infoFileCapability = "CNIDeviceInfoFile";

/**
 * Where an attachment's device information file goes, for its record before the first effect. undefined: it has none, since it has no
 * device and no plugin that would write one.
 */
export function infoFileOf(
  dir: string,
  { containerId }: Pick<RecordKey, "containerId">,
  attachment: Pick<AttachmentRecord, "network" | "ifName" | "conflist" | "device">,
): string | undefined {
  const { network, ifName, conflist, device } = attachment;
  if (device === undefined && !anyWrites(decodeConflist(conflist))) return undefined;
  return attachmentInfoPath(dir, network, { containerId, ifName });
}

function anyWrites({ plugins }: Conflist): boolean {
  return plugins.some((plugin) => declares(plugin, infoFileCapability));
}

/** What plugins are told of the file, among the capability arguments. */
export function infoFileArgs({ deviceInfoFile }: AttachmentRecord): JsonObject {
  return deviceInfoFile === undefined ? {} : { [infoFileCapability]: deviceInfoFile };
}

/**
 * Before the plugins' ADD: what a device plugin says of the device becomes the attachment's own file; one that an earlier attempt left
 * goes. Safe to repeat. What a device plugin left that is no device information is told in the log, and counts as nothing. Throws a
 * CniError with code 11 when the file can't be written.
 */
export function copyInfo(dir: string, attachment: AttachmentRecord, log: Log): void {
  const { deviceInfoFile, device } = attachment;
  if (deviceInfoFile === undefined) return;
  onDisk(() => deleteDeviceInfo(deviceInfoFile));
  if (device === undefined) return;
  const info = readable(devicePluginInfoPath(dir, device.resource, device.id), log);
  if (info !== undefined) onDisk(() => writeDeviceInfo(deviceInfoFile, info));
}

/** After the plugins' ADD: what the file says, for the status. */
export function readInfo({ deviceInfoFile }: AttachmentRecord, log: Log): JsonObject | undefined {
  if (deviceInfoFile === undefined) return undefined;
  const info: unknown = readable(deviceInfoFile, log);
  return isJsonObject(info) ? info : undefined;
}

/** At the end of DEL. Idempotent. Throws a CniError with code 11 when the file is there and can't be deleted. */
export function deleteInfo({ deviceInfoFile }: AttachmentRecord): void {
  if (deviceInfoFile !== undefined) onDisk(() => deleteDeviceInfo(deviceInfoFile));
}

function readable(path: string, log: Log): DeviceInfo | undefined {
  try {
    return readDeviceInfo(path);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    log.warn({ fault: error.message }, "device information ignored");
    return undefined;
  }
}

/** A disk that is full or not there yet is no fault of the call's. */
function onDisk(work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(cniCode.tryAgainLater, error.message, { cause: error });
  }
}
