import { existsSync, readdirSync, readlinkSync, realpathSync, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { errorCode } from "../../../lib/base/errors.ts";
import { cniCode } from "../../../lib/cni/errors.ts";
import { asCniError } from "../shared/errors.ts";

/**
 * Devices as sysfs shows them (Documentation/ABI/testing/sysfs-bus-pci). Only attributes that do not depend on the network namespace of
 * the sysfs mount are read: which interface belongs to a device, netlink tells.
 */
const sysBus = "/sys/bus";

/** Drivers that give a device to user space: there is no interface then. */
const userspaceDrivers: readonly string[] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/** A device on a bus: `{bus: "pci", name: "0000:03:10.1"}`. */
export interface BusDevice {
  readonly bus: string;
  readonly name: string;
}

/** Whether the text has the form of a PCI address: domain, bus, device, function. */
export function isPciAddress(text: string): boolean {
  return /^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$/i.test(text);
}

/** Where sysfs has the device. Throws a RangeError for names that are no single path element. */
export function sysfsPath(device: BusDevice): string {
  if (device.name.includes("/") || device.name === "." || device.name === "..")
    throw new RangeError(`"${device.name}" is not the name of a device`);
  return `${sysBus}/${device.bus}/devices/${device.name}`;
}

/** Whether the node has the device. */
export function deviceExists(device: BusDevice): boolean {
  return !device.name.includes("/") && existsSync(sysfsPath(device));
}

/** The driver bound to the device; undefined when there is none, or no such device. */
export function driverOf(device: BusDevice): string | undefined {
  return linkTarget(`${sysfsPath(device)}/driver`);
}

/** Whether the device is in the hands of a driver for user space. */
export function isUserspaceDriver(driver: string | undefined): boolean {
  return driver !== undefined && userspaceDrivers.includes(driver);
}

/** The devices whose interfaces are the device's: itself, and for virtio the device on the virtio bus below it. */
export function interfaceParents(device: BusDevice): readonly BusDevice[] {
  if (device.bus !== "pci") return [device];
  const below = listDir(sysfsPath(device)).filter((name) => /^virtio\d+$/.test(name));
  return [device, ...below.map((name) => ({ bus: "virtio", name }))];
}

/** The PCI device behind a device of the virtio bus; any other device is its own. */
export function owningDevice(device: BusDevice): BusDevice {
  if (device.bus !== "virtio" || !deviceExists(device)) return device;
  const above = basename(dirname(realpathSync(sysfsPath(device))));
  return isPciAddress(above) ? { bus: "pci", name: above } : device;
}

/** The physical function of a virtual one, and its number there; undefined when the device is not a virtual function. */
export function physicalFunction(
  address: string,
): { readonly address: string; readonly vf: number } | undefined {
  const pf = linkTarget(`${sysfsPath({ bus: "pci", name: address })}/physfn`);
  if (pf === undefined) return undefined;
  const folder = sysfsPath({ bus: "pci", name: pf });
  for (const name of listDir(folder)) {
    if (!name.startsWith("virtfn")) continue;
    if (linkTarget(`${folder}/${name}`) === address)
      return { address: pf, vf: Number(name.slice(6)) };
  }
  return undefined;
}

/** Binds the device to the driver, whatever it is bound to now. Throws a CniError (code 11) when the kernel refuses. */
export function bindDriver(device: BusDevice, driver: string): void {
  const path = sysfsPath(device);
  try {
    if (driverOf(device) !== undefined) writeFileSync(`${path}/driver/unbind`, device.name);
    writeFileSync(`${path}/driver_override`, driver);
    try {
      writeFileSync(`${sysBus}/${device.bus}/drivers/${driver}/bind`, device.name);
    } finally {
      // The override has done its work; left in place it would keep the device from every other driver.
      writeFileSync(`${path}/driver_override`, "\n");
    }
  } catch (error) {
    throw asCniError(
      error,
      cniCode.tryAgainLater,
      `bind device "${device.name}" to driver "${driver}"`,
    );
  }
}

function linkTarget(path: string): string | undefined {
  try {
    return basename(readlinkSync(path));
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function listDir(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  const code = errorCode(error);
  return code === "ENOENT" || code === "ENOTDIR" || code === "ENODEV";
}
