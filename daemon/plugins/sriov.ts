import { cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import { claimLoan, finishLoan, type Loan, moveAndSet, requireLoan } from "./borrow-device.ts";
import { loadBorrowed, type VfBefore } from "./borrowed-state.ts";
import { findByBus } from "./find-device.ts";
import { checkLoan, giveBack } from "./host-device.ts";
import { requestedMac } from "./mac.ts";
import { requireFreeName, requireSandbox } from "./made-link.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { releaseClaims, returnDevice } from "./return-device.ts";
import { asCniError } from "./shared-errors.ts";
import { drift } from "./shared-interface.ts";
import { decodeSriov, type SriovConfig, type VfSettings } from "./sriov-config.ts";
import { adminMac, applyVf, readVf, rememberVf, requireVf, resetVf, type Vf } from "./vf.ts";

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
  if (loan.link === undefined) {
    const mac = config.mac ?? adminMac(info);
    return finishLoan(call, loan, { link: undefined, mac });
  }
  const link = await moveAndSet(call, borrowed, { mac: config.mac, mtu: config.mtu });
  return finishLoan(call, loan, { link, notify: { arp: true, ndisc: true } });
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
