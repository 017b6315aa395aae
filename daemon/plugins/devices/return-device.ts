import { setTimeout as delay } from "node:timers/promises";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { ValidAttachment } from "../../../lib/cni/types.ts";
import type { NetworkCall, PluginCall } from "../plugin.ts";
import { claimKey, locate, type Whereabouts } from "./borrow.ts";
import { type Borrowed, loadBorrowed, saveBorrowed } from "./borrowed-state.ts";
import { bringBack } from "./bring-back.ts";
import { type Claimant, claimsOfNode } from "./device-claims.ts";
import { deleteDeviceInfo } from "./device-info.ts";
import { giveNames } from "./owed-names.ts";
import { bindDriver, deviceExists, driverOf } from "./pci.ts";

const arrivalMs = 3000;
const arrivalEveryMs = 50;

/**
 * Gives a borrowed device back to the node, whatever the workload did to it and wherever it is by now, and ends the claim on it. Idempotent; nothing happens to
 * a device that is another attachment's by now. `reset` undoes what was set on the device from outside, before its interface is touched and once
 * more after that, so it must be safe to repeat.
 * Throws code 11 while the device is on its way.
 */
export async function returnDevice(
  call: PluginCall,
  reset?: (borrowed: Borrowed) => Promise<void>,
): Promise<void> {
  const borrowed = loadBorrowed(call);
  if (borrowed === undefined) return;
  const claims = claimsOfNode();
  if (borrowed.returned) {
    // An earlier daemon wrote this down before it ended the claim.
    claims.release(borrowed.key, call);
    return;
  }
  const isOurs = claims.isHeldBy(borrowed.key, call);
  if (isOurs) {
    claims.returning(borrowed.key, call);
    restoreDriver(borrowed);
    await reset?.(borrowed);
  }
  const found = await awaitDevice(call, borrowed, isOurs);
  if (found !== undefined) {
    for (const warning of await bringBack(call, borrowed, found)) call.log?.warn(warning);
    // A trusted VF that gets its own hardware address back takes it for its administrative one.
    if (isOurs) await reset?.(borrowed);
  }
  if (borrowed.deviceInfoPath !== undefined) deleteDeviceInfo(borrowed.deviceInfoPath);
  // The claim goes first: a daemon that is killed in between, and the earlier one of a rollback, then find a device that is not the attachment's, and leave it alone.
  claims.release(borrowed.key, call);
  await saveBorrowed(call, { ...borrowed, returned: true });
  await giveNames(call.host, call.log);
}

/**
 * Ends the claims of attachments of this network that are not valid any more, where the device is on the node: a device that is still somewhere else stays
 * claimed, since nothing is known any more of what it was like.
 */
export async function releaseClaims(
  call: NetworkCall,
  valid: readonly ValidAttachment[],
): Promise<void> {
  await giveNames(call.host, call.log);
  const claims = claimsOfNode();
  const stale = claims.list().filter((claim) => claim.network === call.network && !isValid(claim));
  if (stale.length === 0) return;
  const present = new Set((await call.host.links()).map(claimKey));
  for (const claim of stale) if (present.has(claim.key)) claims.release(claim.key, claim);

  function isValid(claim: Claimant): boolean {
    return valid.some(
      (one) => one.containerID === claim.containerId && one.ifname === claim.ifName,
    );
  }
}

function restoreDriver({ device, driver }: Borrowed): void {
  if (device === undefined || driver === undefined || !deviceExists(device)) return;
  if (driverOf(device) !== driver) bindDriver(device, driver);
}

/**
 * Where the device is. Without a claim only the sandbox is looked at: on the node it would be somebody else's. undefined: it is gone for good, or there never was
 * an interface. The kernel brings hardware back by itself a moment after its namespace ended.
 */
async function awaitDevice(
  call: PluginCall,
  borrowed: Borrowed,
  isOurs: boolean,
): Promise<Whereabouts | undefined> {
  if (borrowed.before === undefined) return undefined;
  if (!isOurs) {
    const found = await locate(call, borrowed);
    return found?.socket === call.host ? undefined : found;
  }
  const end = performance.now() + arrivalMs;
  for (;;) {
    const found = await locate(call, borrowed);
    if (found !== undefined || isGone(borrowed)) return found;
    if (performance.now() > end) throw stillAway(call, borrowed);
    await delay(arrivalEveryMs, undefined, { signal: call.signal });
  }
}

/** A virtual link ends with its namespace; hardware can be unplugged. */
function isGone({ kind, device }: Borrowed): boolean {
  if (kind !== undefined) return true;
  return device !== undefined && !deviceExists(device);
}

function stillAway(call: PluginCall, borrowed: Borrowed): CniError {
  return new CniError(
    cniCode.tryAgainLater,
    `network "${call.network}": device "${borrowed.key}" has not come back to the node yet: it is in a namespace that is still ending, or that something keeps alive`,
  );
}
