import { closeSync, constants, fstatSync, openSync, readFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { z } from "zod";
import { DecodeError, decode } from "../../../lib/base/decode.ts";
import { errorCode } from "../../../lib/base/errors.ts";
import { ensureDir, removeFile } from "../../../lib/base/files.ts";
import { type CniError, cniCode } from "../../../lib/cni/errors.ts";
import { asCniError } from "../shared/errors.ts";

/*
 * Device information files (Device Information Specification 1.1.0 of the Network Plumbing Working Group): what a workload needs to know of a
 * device that it was given, such as its PCI address. They lie below /var/run/k8s.cni.cncf.io/devinfo.
 */

/** The version that podnet writes. Files of other versions are read: fields were only ever added. */
export const deviceInfoVersion = "1.1.0";
const longestInfo = 64 * 1024;

const text = z.string().min(1);
const version = z.string().min(1);
const pciAddress = z
  .string()
  .regex(/^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$/i, { error: "must be a PCI address" });

const pciInfo = z.looseObject({
  "pci-address": pciAddress,
  "vhost-net": text.optional(),
  "rdma-device": text.optional(),
  "pf-pci-address": pciAddress.optional(),
  "representor-device": text.optional(),
});
const vdpaInfo = z.looseObject({
  "parent-device": text,
  driver: z.enum(["vhost", "virtio"]),
  path: text,
  "pci-address": pciAddress.optional(),
  "pf-pci-address": pciAddress.optional(),
  "representor-device": text.optional(),
});
const vhostUserInfo = z.looseObject({ mode: z.enum(["client", "server"]), path: text });
const memifInfo = z.looseObject({
  role: z.enum(["master", "slave"]),
  path: text,
  mode: z.enum(["ethernet", "ip", "punt", "inject-punt"]),
});

const schema = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("pci"), version, pci: pciInfo }),
  z.looseObject({ type: z.literal("vdpa"), version, vdpa: vdpaInfo }),
  z.looseObject({ type: z.literal("vhost-user"), version, "vhost-user": vhostUserInfo }),
  z.looseObject({ type: z.literal("memif"), version, memif: memifInfo }),
]);

/** The content of a device information file; unknown keys are kept. */
export type DeviceInfo = z.output<typeof schema>;

/** Where a device plugin leaves the information on a device of a resource (`vendor.com/resource`). */
export function devicePluginInfoPath(dir: string, resourceName: string, deviceId: string): string {
  return `${dir}/dp/${flat(resourceName)}-${flat(deviceId)}-device.json`;
}

/** Where the information on one attachment's device goes. `network` may be a NAD's `namespace/name`. */
export function attachmentInfoPath(
  dir: string,
  network: string,
  at: { readonly containerId: string; readonly ifName: string },
): string {
  return `${dir}/cni/${flat(network)}-${flat(at.containerId)}_${flat(at.ifName)}`;
}

/** Slashes would lead into another folder; the specification writes them as a dash. A NUL is in no path. */
function flat(name: string): string {
  return name.replaceAll(/[/\0]/g, "-");
}

/** Decodes a device information value. Throws a DecodeError with every fault. */
export function decodeDeviceInfo(value: unknown): DeviceInfo {
  return decode(schema, value, "device information");
}

/**
 * Reads a device information file. undefined: there is none.
 * Throws a CniError: code 5 when it can't be read, code 6 when it is not device information.
 */
export function readDeviceInfo(path: string): DeviceInfo | undefined {
  let content: string;
  try {
    content = readSmall(path);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw ioError("read", path, error);
  }
  try {
    return decodeDeviceInfo(JSON.parse(content));
  } catch (error) {
    if (!(error instanceof DecodeError || error instanceof SyntaxError)) throw error;
    throw asCniError(error, cniCode.decodingFailure, `read device information "${path}"`);
  }
}

/** A pipe would be waited for without end, and a large file is no such information. */
function readSmall(path: string): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new Error("it is no regular file");
    if (stat.size > longestInfo) throw new Error(`it has more than ${longestInfo} bytes`);
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

/**
 * Writes a device information file, read-only as the specification's own library does, and the folders above it. A file that exists stays as it is:
 * somebody nearer to the device wrote it; false then. Throws a CniError with code 5.
 */
export function writeDeviceInfo(path: string, info: DeviceInfo): boolean {
  const bytes = Buffer.from(`${JSON.stringify(info)}\n`);
  try {
    ensureDir(dirname(path), 0o755);
    const fd = openSync(path, "wx", 0o444);
    try {
      writeSync(fd, bytes);
    } finally {
      closeSync(fd);
    }
    return true;
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw ioError("write", path, error);
  }
}

/** Deletes a device information file. Idempotent. Throws a CniError with code 5. */
export function deleteDeviceInfo(path: string): void {
  try {
    removeFile(path);
  } catch (error) {
    throw ioError("delete", path, error);
  }
}

/** The information on a PCI device. */
export function pciDeviceInfo(address: string, pfAddress?: string): DeviceInfo {
  const pci = {
    "pci-address": address,
    ...(pfAddress === undefined ? {} : { "pf-pci-address": pfAddress }),
  };
  return { type: "pci", version: deviceInfoVersion, pci };
}

function ioError(verb: string, path: string, error: unknown): CniError {
  return asCniError(error, cniCode.ioFailure, `${verb} device information "${path}"`);
}
