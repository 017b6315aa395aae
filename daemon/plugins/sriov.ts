import { setTimeout as delay } from "node:timers/promises";
import { cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import { identify } from "./devices/borrow.ts";
import {
  claimLoan,
  finishLoan,
  type Loan,
  moveAndSet,
  requireLoan,
} from "./devices/borrow-device.ts";
import { loadBorrowed, saveBorrowed, type VfBefore } from "./devices/borrowed-state.ts";
import { findByBus } from "./devices/find-device.ts";
import { type BusDevice, bindDriver, driverOf } from "./devices/pci.ts";
import { releaseClaims, returnDevice } from "./devices/return-device.ts";
import { checkLoan, giveBack } from "./host-device.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { asCniError } from "./shared/errors.ts";
import { drift } from "./shared/interface.ts";
import { requestedMac } from "./shared/mac.ts";
import { requireFreeName, requireSandbox } from "./shared/made-link.ts";
import { decodeSriov, type SriovConfig, type VfSettings } from "./sriov/config.ts";
import {
  adminMac,
  applyVf,
  readVf,
  rememberVf,
  requireInfiniband,
  requireVf,
  resetVf,
  type Vf,
} from "./sriov/vf.ts";

const arrivalEveryMs = 50;

/**
 * sriov-cni's sriov: a virtual function of a network card becomes the pod's interface, or the pod's device when a driver for user space has it; what the
 * physical function enforces on it (VLAN, rates, hardware address, ...) is set before, and put back after.
 */
export const sriov: Plugin = { add, del, check, gc: releaseClaims };

function decode(call: PluginCall): SriovConfig {
  return decodeSriov(call, (key) => requestedMac(call, key));
}

async function add(call: PluginCall): Promise<CniResult> {
  const config = decode(call);
  const sandbox = requireSandbox(call);
  const { deviceId } = config;
  const vf = await requireVf(call, deviceId);
  if (config.guid !== undefined) requireInfiniband(call, vf, config.guid);
  const found = await findByBus(call.host, { bus: "pci", name: deviceId });
  const loan = requireLoan(call, found, deviceId);
  await requireFreeName(call, sandbox);
  try {
    return await lend(call, config, { loan, vf });
  } catch (error) {
    const action = `give virtual function "${deviceId}" of network "${call.network}" to the pod`;
    throw asCniError(error, cniCode.internal, action);
  }
}

async function lend(
  call: PluginCall,
  config: SriovConfig,
  { loan, vf }: { readonly loan: Loan; readonly vf: Vf },
): Promise<CniResult> {
  const info = await readVf(call.host, vf);
  const borrowed = await claimLoan(call, loan, rememberVf(vf, info));
  await applyVf(call, vf, config.settings);
  if (config.guid !== undefined && loan.link !== undefined) return lendAnew(call, config, loan);
  if (loan.link === undefined) {
    const mac = config.mac ?? adminMac(info);
    return finishLoan(call, loan, { link: undefined, mac });
  }
  const link = await moveAndSet(call, borrowed, { mac: config.mac, mtu: config.mtu });
  return finishLoan(call, loan, { link, notify: { arp: true, ndisc: true } });
}

/** A driver reads the GUID of its function when it is bound, so it is bound again, which makes its interface anew. */
async function lendAnew(call: PluginCall, config: SriovConfig, loan: Loan): Promise<CniResult> {
  const { device } = loan;
  const driver = device === undefined ? undefined : driverOf(device);
  if (device === undefined || driver === undefined) throw new TypeError("no driver to bind again");
  bindDriver(device, driver);
  const link = await awaitLink(call, device);
  const borrowed = loadBorrowed(call);
  if (borrowed === undefined) throw new TypeError("nothing was borrowed");
  // It will come back as this one.
  const anew = { ...borrowed, ...(await identify(call.host, link)) };
  await saveBorrowed(call, anew);
  const moved = await moveAndSet(call, anew, { mtu: config.mtu });
  return finishLoan(call, { ...loan, link }, { link: moved, notify: { arp: true, ndisc: true } });
}

async function awaitLink(call: PluginCall, device: BusDevice): Promise<Link> {
  for (;;) {
    const { link } = await findByBus(call.host, device);
    if (link !== undefined) return link;
    await delay(arrivalEveryMs, undefined, { signal: call.signal });
  }
}

async function del(call: PluginCall): Promise<void> {
  await giveBack(call, () =>
    // From outside first: an untrusted VF can't take another hardware address than the one that was forced on it.
    returnDevice(call, async ({ vf }) => {
      if (vf !== undefined) await resetVf(call, vf);
    }),
  );
}

/** What the physical function enforced before and nobody was to change; the pod itself may change its hardware address. */
function untouched(before: VfBefore | undefined): VfSettings {
  if (before === undefined) return {};
  const { vlan, qos, spoofCheck, trust, linkState, minTxRate, maxTxRate } = before;
  return { vlan, qos, spoofCheck, trust, linkState, minTxRate, maxTxRate };
}

async function check(call: PluginCall): Promise<void> {
  const config = decode(call);
  const vf = await requireVf(call, config.deviceId);
  await checkLoan(call);
  const now = await readVf(call.host, vf);
  const expected = { ...untouched(loadBorrowed(call)?.vf), ...config.settings };
  for (const [key, value] of Object.entries(expected)) {
    const found = now[key as keyof VfSettings];
    if (found === value) continue;
    throw drift(call, `VF ${vf.vf} of "${vf.pf.name}": ${key} is ${found}, not ${value}`);
  }
}
