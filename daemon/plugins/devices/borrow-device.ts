import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { CniInterface, CniResult } from "../../../lib/cni/types.ts";
import type { Link } from "../../../lib/netlink/model.ts";
import type { PluginCall, Sandbox } from "../plugin.ts";
import { announce } from "../shared/announce.ts";
import { configureInterface } from "../shared/interface.ts";
import { requireSandbox } from "../shared/made-link.ts";
import { configuredDns, interfaceOf, ipamResult } from "../shared/made-type.ts";
import { claimKey, deviceKey, identify, moveIn, setMac } from "./borrow.ts";
import { type Borrowed, loadBorrowed, saveBorrowed, type VfBefore } from "./borrowed-state.ts";
import { claimsOfNode, heldError } from "./device-claims.ts";
import { pciDeviceInfo, writeDeviceInfo } from "./device-info.ts";
import type { FoundDevice } from "./find-device.ts";
import {
  type BusDevice,
  deviceExists,
  driverOf,
  isUserspaceDriver,
  owningDevice,
  physicalFunction,
} from "./pci.ts";

/** What is lent to an attachment. Without a link it is a device that a driver for user space has. */
export interface Loan {
  readonly key: string;
  readonly device: BusDevice | undefined;
  readonly link: Link | undefined;
}

/**
 * Turns what was found into what can be lent. Throws code 105 that names the attachment which has the device, code 11 while it is on its way back, or code 7
 * when there is no such device.
 */
export function requireLoan(call: PluginCall, found: FoundDevice, wanted: string): Loan {
  const { link } = found;
  const device = found.device === undefined ? undefined : owningDevice(found.device);
  if (link !== undefined) return { key: claimKey(link), device, link };
  if (device !== undefined && deviceExists(device)) {
    const key = deviceKey(device);
    if (isUserspaceDriver(driverOf(device))) return { key, device, link };
    const claim = claimsOfNode().read(key);
    throw heldError(wanted, call, claim);
  }
  const claim = claimsOfNode().findByName(wanted);
  if (claim !== undefined) throw heldError(wanted, call, claim);
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": device "${wanted}": no such device on this node`,
  );
}

/** Saves what is about to be borrowed, then claims it: from here on DEL gives it back. */
export async function claimLoan(call: PluginCall, loan: Loan, vf?: VfBefore): Promise<Borrowed> {
  const { key, device, link } = loan;
  const driver = device === undefined ? undefined : driverOf(device);
  const borrowed: Borrowed = {
    ...(link === undefined ? {} : await identify(call.host, link)),
    ...(device === undefined ? {} : { device }),
    ...(driver === undefined ? {} : { driver }),
    ...(vf === undefined ? {} : { vf }),
    key,
    returned: false,
  };
  await saveBorrowed(call, borrowed);
  claimsOfNode().take(key, link?.name ?? key, call);
  return borrowed;
}

/** What can be given the interface on its way in. */
export interface MoveOptions {
  readonly mac?: string | undefined;
  readonly mtu?: number | undefined;
}

/** Moves the interface into the sandbox and sets it up there, but for its addresses. It is down afterwards. */
export async function moveAndSet(
  call: PluginCall,
  borrowed: Borrowed,
  options: MoveOptions = {},
): Promise<Link> {
  const { rtnl } = requireSandbox(call);
  const link = await moveIn(call, borrowed);
  const { mac, mtu } = options;
  if (mac !== undefined && mac !== link.mac) await setMac(rtnl, link.index, mac);
  if (mtu !== undefined) await rtnl.changeLink(link.index, { mtu });
  return { ...link, mac: mac ?? link.mac, mtu: mtu ?? link.mtu };
}

/** Addresses of IPAM on the interface (or, for a driver in user space, in the result only), and the result. */
export async function finishLoan(
  call: PluginCall,
  loan: Loan,
  parts: {
    readonly link: Link | undefined;
    readonly mac?: string | undefined;
    readonly notify?: { readonly arp: boolean; readonly ndisc: boolean };
  },
): Promise<CniResult> {
  const sandbox = requireSandbox(call);
  const addresses = await ipamResult(call);
  const result: CniResult = {
    interfaces: [loanInterface(call, sandbox, { loan, ...parts })],
    ips: addresses.ips.map((ip) => ({ ...ip, interface: 0 })),
    routes: addresses.routes,
    dns: call.ipam === undefined ? {} : configuredDns(call),
  };
  const { link, notify } = parts;
  if (link !== undefined) {
    await configureInterface(call, sandbox, { link, setup: { result, index: 0, notify } });
    announce(sandbox, link, result.ips);
  }
  await publishDeviceInfo(call, loan);
  return result;
}

function loanInterface(
  call: PluginCall,
  sandbox: Sandbox,
  parts: {
    readonly loan: Loan;
    readonly link: Link | undefined;
    readonly mac?: string | undefined;
  },
): CniInterface {
  const { loan, link, mac } = parts;
  const pci = loan.device?.bus === "pci" ? { pciID: loan.device.name } : {};
  if (link !== undefined) return { ...interfaceOf(sandbox, link), ...pci };
  return {
    name: call.ifName,
    ...(mac === undefined ? {} : { mac }),
    sandbox: sandbox.path,
    ...pci,
  };
}

/** Writes the file of runtimeConfig `CNIDeviceInfoFile`, unless a device plugin's was put there before. */
async function publishDeviceInfo(call: PluginCall, loan: Loan): Promise<void> {
  const path = call.runtimeConfig["CNIDeviceInfoFile"];
  if (typeof path !== "string" || path === "" || loan.device?.bus !== "pci") return;
  const { name } = loan.device;
  const borrowed = loadBorrowed(call);
  if (borrowed === undefined) return;
  if (writeDeviceInfo(path, pciDeviceInfo(name, physicalFunction(name)?.address))) {
    await saveBorrowed(call, { ...borrowed, deviceInfoPath: path });
  }
}
