import { networksArg } from "../../lib/api/names.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { type Conflist, decodeConflist } from "../../lib/cni/conflist.ts";
import { mergeCniArgs, runtimeConfigFor, withDeviceId } from "../../lib/cni/derive.ts";
import { type CniError, cniCode } from "../../lib/cni/errors.ts";
import { decodeCniArgs } from "../../lib/cni/request.ts";
import { type CniResult, emptyResult, type PluginConfig } from "../../lib/cni/types.ts";
import { versionAtLeast } from "../../lib/cni/versions.ts";
import { bindIpam, type IpamCall } from "../ipam/ipam.ts";
import type { BoundIpam, Plugin, PluginCall, PluginState, Sandbox } from "../plugins/plugin.ts";
import type { NodeContext } from "./context.ts";
import { copyInfo, deleteInfo, infoFileArgs, readInfo } from "./devices/info.ts";
import { asFailure } from "./failure.ts";
import type { AttachmentRecord, SandboxRecord } from "./record.ts";

/** One attachment of a record, and what an operation on it works with. */
export interface AttachmentWork {
  readonly node: NodeContext;
  readonly record: SandboxRecord;
  readonly attachment: AttachmentRecord;
  readonly sandbox: Sandbox | undefined;
  readonly signal: AbortSignal;
}

interface Step {
  readonly plugin: Plugin;
  readonly call: PluginCall;
  /** Of an executable: whether its ADD was begun. */
  readonly started: ReturnType<typeof startMark> | undefined;
}

function stateOf(work: AttachmentWork, place: string): PluginState {
  const { attachment, record, node } = work;
  return {
    load: () => attachment.states[place],
    save: async (state: JsonObject) => {
      attachment.states[place] = state;
      node.store.put(record);
    },
  };
}

function ipamOf(work: AttachmentWork, place: string, call: IpamCall): BoundIpam | undefined {
  const type = call.config.ipam?.type;
  if (type === undefined || type === "") return undefined;
  const { plugin, executable } = work.node.plugins.ipam(type, work.record.cniPath);
  const ipam = bindIpam(plugin, call);
  if (!executable) return ipam;
  const started = startMark(work, `${place}.ipam`);
  return {
    add: async () => {
      await started.set();
      return await ipam.add();
    },
    del: async () => {
      if (started.isSet()) await ipam.del();
    },
    check: () => ipam.check(),
  };
}

/**
 * Says in the record that an executable's ADD was begun. An executable that never was need not be there when the rest is given back;
 * plugins in process know themselves what they did.
 */
function startMark(work: AttachmentWork, place: string) {
  const state = stateOf(work, place);
  return { set: () => state.save({ started: true }), isSet: () => state.load() !== undefined };
}

/** CNI_ARGS for a plugin: podnet's own keys are nobody else's business, and the reference plugins refuse them. */
function pluginArgs(text: string): ReadonlyMap<string, string> {
  const args = new Map(decodeCniArgs(text));
  args.delete(networksArg);
  return args;
}

/** Plugin configurations with their list's name and version. Kept, so that one list gives the same objects each time and what was decoded of them serves again. */
const namedConfigs = new WeakMap<PluginConfig, PluginConfig>();

function configOf(work: AttachmentWork, conflist: Conflist, plugin: PluginConfig): PluginConfig {
  const { name, cniVersion } = conflist;
  const named = namedConfigs.get(plugin) ?? { ...plugin, cniVersion, name };
  namedConfigs.set(plugin, named);
  const { cniArgs, device } = work.attachment;
  return withDeviceId(mergeCniArgs(named, cniArgs), device?.id);
}

function stepAt(
  work: AttachmentWork,
  conflist: Conflist,
  place: { readonly index: number; readonly prevResult: CniResult | undefined },
): Step {
  const plugin = conflist.plugins[place.index];
  if (plugin === undefined) throw new RangeError(`plugin ${place.index} of "${conflist.name}"`);
  const { record, attachment, sandbox, node, signal } = work;
  const call: Omit<PluginCall, "ipam"> = {
    network: conflist.name,
    config: configOf(work, conflist, plugin),
    host: node.host,
    log: node.log,
    signal,
    containerId: record.containerId,
    ifName: attachment.ifName,
    sandbox,
    netnsPath: record.netns,
    runtimeConfig: runtimeConfigFor(plugin, {
      ...attachment.capabilityArgs,
      ...infoFileArgs(attachment),
    }),
    cniArgs: pluginArgs(record.cniArgs),
    prevResult: place.prevResult,
    state: stateOf(work, String(place.index)),
  };
  const key = String(place.index);
  const found = attachment.external?.includes(place.index)
    ? node.plugins.external(plugin.type, record.cniPath)
    : node.plugins.plugin(plugin.type, record.cniPath);
  return {
    plugin: found.plugin,
    call: { ...call, ipam: ipamOf(work, key, call) },
    started: found.executable ? startMark(work, key) : undefined,
  };
}

/** Puts the network's name before a failure's message, once, and keeps its code, unless the operation was ended: then that is why it failed. */
function onNetwork({ attachment, signal }: AttachmentWork, verb: string, error: unknown): CniError {
  const where = `${verb} network "${attachment.network}" (${attachment.ifName})`;
  return asFailure(error, where, signal.aborted ? cniCode.tryAgainLater : undefined);
}

/**
 * Runs the chain's ADD, each plugin with the result of the one before it, and puts the final result into the attachment's
 * record (not yet on disk). On failure the caller detaches.
 */
export async function attach(work: AttachmentWork): Promise<CniResult> {
  const conflist = decodeConflist(work.attachment.conflist);
  const { attachment, node } = work;
  let result: CniResult | undefined;
  try {
    copyInfo(node.config.deviceInfoDir, attachment, node.log);
    for (const index of conflist.plugins.keys()) {
      work.signal.throwIfAborted();
      const { plugin, call, started } = stepAt(work, conflist, { index, prevResult: result });
      await started?.set();
      result = await plugin.add(call);
    }
  } catch (error) {
    throw onNetwork(work, "attach", error);
  }
  const info = readInfo(attachment, node.log);
  if (info !== undefined) attachment.deviceInfo = info;
  attachment.result = result ?? emptyResult;
  return attachment.result;
}

/**
 * Runs the chain's DEL from its last plugin to its first, from the record alone. Idempotent; stops at the first plugin that
 * can't give back what it made, since the ones below may still be needed for it.
 */
export async function detach(work: AttachmentWork): Promise<void> {
  const conflist = decodeConflist(work.attachment.conflist);
  const prevResult = work.attachment.result;
  try {
    for (const index of [...conflist.plugins.keys()].reverse()) {
      const { plugin, call, started } = stepAt(work, conflist, { index, prevResult });
      if (started === undefined || started.isSet()) await plugin.del(call);
    }
    deleteInfo(work.attachment);
    if (work.record.inherited !== undefined) await removeForeignLink(work, conflist);
  } catch (error) {
    throw onNetwork(work, "detach", error);
  }
}

/** Types that make the sandbox's interface, and so delete it. */
const makers = new Set(["bridge", "dummy", "ipvlan", "macvlan", "ptp", "tap", "vlan"]);

/**
 * Plugins in process know their own links by what ADD saved, so that of an attachment which an executable made stays. It is known by
 * the interface's name, as those executables know it.
 */
async function removeForeignLink(
  { attachment, sandbox }: AttachmentWork,
  { plugins: [maker] }: Conflist,
): Promise<void> {
  if (sandbox === undefined || maker === undefined || !makers.has(maker.type)) return;
  const link = await sandbox.rtnl.getLink({ name: attachment.ifName });
  if (link !== undefined) await sandbox.rtnl.deleteLink({ index: link.index });
}

/** Runs the chain's CHECK. Networks that disable it, or whose configuration is older than it (0.4.0), pass. */
export async function checkAttachment(work: AttachmentWork): Promise<void> {
  const conflist = decodeConflist(work.attachment.conflist);
  if (conflist.disableCheck || !versionAtLeast(conflist.cniVersion, "0.4.0")) return;
  const prevResult = work.attachment.result;
  try {
    for (const index of conflist.plugins.keys()) {
      const { plugin, call } = stepAt(work, conflist, { index, prevResult });
      await plugin.check(call);
    }
  } catch (error) {
    throw onNetwork(work, "check", error);
  }
}
