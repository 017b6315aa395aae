import { randomInt } from "node:crypto";
import type { JsonObject } from "../../../lib/base/json.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { Link, LinkSpec } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { PluginCall, Sandbox } from "../plugin.ts";

/**
 * Links that an attachment makes are known by an index that is chosen at random and saved before the link exists. So whatever
 * moment an ADD is cut off at, DEL deletes the link that this attachment made and no other, whatever its name is by then.
 * The range is far above what the kernel hands out by counting up, so that an index is never met again by chance.
 */
const lowestIndex = 2 ** 30;
const highestIndex = 2 ** 31 - 2;

/** An index for a link that is about to be made. */
export function chooseIndex(): number {
  return randomInt(lowestIndex, highestIndex);
}

/** The state that `deleteMadeLink` reads. */
export function madeLinkState(index: number): JsonObject {
  return { madeIndex: index };
}

/** The index of the lower device that `makeLink` made the link on; undefined when there is none, or the record is older than this. */
export function madeOn(call: PluginCall): number | undefined {
  const index = call.state.load()?.["masterIndex"];
  return typeof index === "number" ? index : undefined;
}

/** The index that `madeLinkState` saved; undefined when nothing was made. */
export function madeIndex(call: PluginCall): number | undefined {
  const index = call.state.load()?.["madeIndex"];
  return typeof index === "number" ? index : undefined;
}

/** The sandbox of a verb that can't do without one. */
export function requireSandbox(call: PluginCall): Sandbox {
  if (call.sandbox !== undefined) return call.sandbox;
  throw new CniError(
    cniCode.invalidNetns,
    `open network namespace "${call.netnsPath ?? ""}": it is gone or was not given`,
  );
}

/** Throws code 4 when the interface exists in the sandbox already: it is somebody else's, or an ADD came twice. */
export async function requireFreeName(call: PluginCall, sandbox: Sandbox): Promise<void> {
  const existing = await sandbox.rtnl.getLink({ name: call.ifName });
  if (existing === undefined) return;
  throw new CniError(
    cniCode.invalidEnvironment,
    `make interface "${call.ifName}": it exists already in "${sandbox.path}" (CNI_IFNAME)`,
  );
}

/** Makes a link in the sandbox under the interface's name and gives it back as the kernel reports it. */
export async function makeLink(
  call: PluginCall,
  socket: Rtnetlink,
  spec: Omit<LinkSpec, "name" | "index">,
): Promise<Link> {
  const sandbox = requireSandbox(call);
  const index = chooseIndex();
  const on = spec.link === undefined ? {} : { masterIndex: spec.link };
  await call.state.save({ ...madeLinkState(index), ...on });
  const elsewhere = socket === sandbox.rtnl ? {} : { netnsFd: sandbox.netns.fd };
  await socket.createLink({ ...spec, ...elsewhere, name: call.ifName, index });
  return requireLink(sandbox.rtnl, { index, name: call.ifName });
}

/** The link with this index. Throws code 11 when it is gone again. */
export async function requireLink(
  rtnl: Rtnetlink,
  ref: { readonly index: number; readonly name: string },
): Promise<Link> {
  const link = await rtnl.getLink({ index: ref.index });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.tryAgainLater,
    `find interface "${ref.name}": somebody deleted it while it was being configured`,
  );
}

/** Deletes the link that `makeLink` made in the sandbox. Idempotent; a link in a namespace that is gone went with it. */
export async function deleteMadeLink(call: PluginCall): Promise<void> {
  const index = madeIndex(call);
  if (index === undefined || call.sandbox === undefined) return;
  await call.sandbox.rtnl.deleteLink({ index });
}
