import { readdirSync, readlinkSync, realpathSync } from "node:fs";
import { basename } from "node:path";
import { errorText } from "../../../lib/base/errors.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import { type BusDevice, deviceExists, interfaceParents } from "./pci.ts";

/** A device of the node: its place on a bus when it has one, its interface when there is one on the node. */
export interface FoundDevice {
  readonly device: BusDevice | undefined;
  readonly link: Link | undefined;
}

/** The bus device that an interface belongs to, as the kernel reports it (IFLA_PARENT_DEV_NAME, Linux 5.14). */
export function parentOf(link: Link): BusDevice | undefined {
  if (link.parentDevName === undefined || link.parentDevBusName === undefined) return undefined;
  return { bus: link.parentDevBusName, name: link.parentDevName };
}

/**
 * The interface of a bus device among the links. When a device has several: the one with this permanent hardware address, else the first by name, as
 * in the reference.
 */
export function linkOfDevice(
  links: readonly Link[],
  device: BusDevice,
  permanentMac?: string,
): Link | undefined {
  const parents = interfaceParents(device);
  const own = links
    .filter((link) => {
      const parent = parentOf(link);
      return parents.some((one) => one.bus === parent?.bus && one.name === parent.name);
    })
    .sort((left, right) => (left.name < right.name ? -1 : 1));
  const exact = own.find(
    (link) => permanentMac !== undefined && link.permanentMac === permanentMac,
  );
  return exact ?? own[0];
}

/** The bus device of a runtimeConfig `deviceID`: a PCI address or the name of an auxiliary device. undefined: the node has none. */
export function busDeviceOfId(id: string): BusDevice | undefined {
  const candidates: BusDevice[] = [
    { bus: "pci", name: id },
    { bus: "auxiliary", name: id },
  ];
  return candidates.find(deviceExists);
}

/** The device and, when it has one on the node, its interface. */
export async function findByBus(host: Rtnetlink, device: BusDevice): Promise<FoundDevice> {
  return { device, link: linkOfDevice(await host.links(), device) };
}

/** The interface that has this hardware address now. */
export async function findByMac(host: Rtnetlink, mac: string): Promise<FoundDevice> {
  const link = (await host.links()).find((one) => one.mac === mac);
  return { device: link && parentOf(link), link };
}

/** The interface of the device at a path below /sys/devices. Throws a CniError with code 7 for another path. */
export async function findByKernelPath(
  host: Rtnetlink,
  path: string,
  network: string,
): Promise<FoundDevice> {
  const invalid = (reason: string, cause?: unknown): CniError =>
    new CniError(
      cniCode.invalidNetworkConfig,
      `network "${network}": kernelpath "${path}": ${reason}`,
      { cause },
    );
  if (!path.startsWith("/sys/devices/")) throw invalid("must begin with /sys/devices/");
  let real: string;
  try {
    real = realpathSync(path);
  } catch (error) {
    throw invalid(errorText(error), error);
  }
  if (!real.startsWith("/sys/devices/")) throw invalid("must lead to a place below /sys/devices/");
  const bus = subsystemOf(real);
  if (bus !== undefined) return findByBus(host, { bus, name: basename(real) });
  const name = firstInterface(real);
  if (name === undefined) return { device: undefined, link: undefined };
  const link = await host.getLink({ name });
  return { device: link && parentOf(link), link };
}

function subsystemOf(path: string): string | undefined {
  try {
    return basename(readlinkSync(`${path}/subsystem`));
  } catch {
    return undefined;
  }
}

function firstInterface(path: string): string | undefined {
  try {
    return readdirSync(`${path}/net`).sort()[0];
  } catch {
    return undefined;
  }
}
