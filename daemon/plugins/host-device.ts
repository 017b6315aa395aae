import { z } from "zod";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import { claimLoan, finishLoan, moveAndSet, requireLoan } from "./devices/borrow-device.ts";
import { loadBorrowed } from "./devices/borrowed-state.ts";
import {
  busDeviceOfId,
  type FoundDevice,
  findByBus,
  findByKernelPath,
  findByMac,
  parentOf,
} from "./devices/find-device.ts";
import { giveNames } from "./devices/owed-names.ts";
import { deviceExists, driverOf, isPciAddress, isUserspaceDriver } from "./devices/pci.ts";
import { releaseClaims, returnDevice } from "./devices/return-device.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { decodeConfig, optional } from "./shared/config.ts";
import { asCniError } from "./shared/errors.ts";
import { checkInterface, drift } from "./shared/interface.ts";
import { macField } from "./shared/mac.ts";
import { requireFreeName, requireSandbox } from "./shared/made-link.ts";
import { requireOwnInterface } from "./shared/made-type.ts";

const text = optional(z.string()).transform((value) => (value === "" ? undefined : value));

const schema = z.object({
  device: text,
  hwaddr: optional(macField),
  kernelpath: text,
  pciBusID: text,
});
type Config = z.output<typeof schema>;

/**
 * The reference's host-device: an interface of the node becomes the pod's, and comes back as it was. It is known by its place on a bus, its permanent
 * hardware address and its index, never by its name in the pod.
 */
export const hostDevice: Plugin = { add, del, check, gc: releaseClaims };

function decodeHostDevice(call: PluginCall): Config {
  return decodeConfig(schema, call.config, { network: call.network, plugin: "host-device" });
}

async function add(call: PluginCall): Promise<CniResult> {
  const config = decodeHostDevice(call);
  const sandbox = requireSandbox(call);
  const wanted = await findDevice(call, config);
  const loan = requireLoan(call, wanted.found, wanted.name);
  await requireFreeName(call, sandbox);
  try {
    const borrowed = await claimLoan(call, loan);
    if (loan.link === undefined) return await finishLoan(call, loan, { link: undefined });
    const link = await moveAndSet(call, borrowed);
    return await finishLoan(call, loan, { link });
  } catch (error) {
    const action = `move device "${wanted.name}" of network "${call.network}" into the pod`;
    throw asCniError(error, cniCode.internal, action);
  }
}

interface Wanted {
  /** As the configuration names the device. */
  readonly name: string;
  readonly found: FoundDevice;
}

/** The first key that is set decides, in the reference's order; runtimeConfig `deviceID` replaces `pciBusID`. */
async function findDevice(call: PluginCall, config: Config): Promise<Wanted> {
  const { host, network } = call;
  const { device, hwaddr, kernelpath } = config;
  const bus = busDevice(call, config);
  if (device !== undefined) {
    const link = await byName(call, device);
    return { name: device, found: { device: link && parentOf(link), link } };
  }
  if (hwaddr !== undefined) return { name: hwaddr, found: await findByMac(host, hwaddr) };
  if (kernelpath !== undefined) {
    return { name: kernelpath, found: await findByKernelPath(host, kernelpath, network) };
  }
  if (bus !== undefined) return { name: bus.name, found: await findByBus(host, bus) };
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${network}": host-device: set one of "device", "hwaddr", "kernelpath" and "pciBusID"`,
  );
}

/** A device may have come back under another name, and its own be free since. */
async function byName({ host, log }: PluginCall, name: string): Promise<Link | undefined> {
  const link = await host.getLink({ name });
  if (link !== undefined) return link;
  await giveNames(host, log);
  return host.getLink({ name });
}

function busDevice(call: PluginCall, config: Config) {
  const id = call.runtimeConfig["deviceID"];
  if (typeof id === "string" && id !== "") {
    const found = busDeviceOfId(id);
    if (found !== undefined) return found;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `network "${call.network}": runtimeConfig.deviceID "${id}": no such PCI or auxiliary device on this node`,
    );
  }
  const pci = config.pciBusID;
  if (pci === undefined) return undefined;
  if (isPciAddress(pci) && deviceExists({ bus: "pci", name: pci }))
    return { bus: "pci", name: pci };
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": pciBusID "${pci}": no such PCI device on this node`,
  );
}

async function del(call: PluginCall): Promise<void> {
  await giveBack(call, () => returnDevice(call));
}

/** Addresses and device both, whatever happens to the other one; the first failure is reported. */
export async function giveBack(call: PluginCall, device: () => Promise<void>): Promise<void> {
  const errors: unknown[] = [];
  for (const step of [async () => call.ipam?.del(), device]) {
    try {
      await step();
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length === 0) return;
  const action = `give back the device of interface "${call.ifName}" of network "${call.network}"`;
  throw asCniError(errors[0], cniCode.tryAgainLater, action);
}

async function check(call: PluginCall): Promise<void> {
  await checkLoan(call);
}

/** Rejects when the device is not where and as ADD left it. Gives the interface, where there is one. */
export async function checkLoan(call: PluginCall): Promise<Link | undefined> {
  const sandbox = requireSandbox(call);
  const borrowed = loadBorrowed(call);
  await call.ipam?.check();
  if (borrowed?.device !== undefined && borrowed.before === undefined) {
    const driver = driverOf(borrowed.device);
    if (isUserspaceDriver(driver)) return undefined;
    throw drift(call, `device "${borrowed.key}" has driver "${driver ?? "none"}"`);
  }
  const { link, result } = await requireOwnInterface(call, sandbox);
  const isIt =
    borrowed?.device === undefined
      ? link.index === borrowed?.podIndex
      : parentOf(link)?.name === borrowed.device.name;
  if (!isIt) throw drift(call, `interface "${link.name}" is not device "${borrowed?.key}"`);
  await checkInterface(call, sandbox, { link, result });
  return link;
}
