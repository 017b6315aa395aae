import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { deadline } from "../../../lib/base/deadlines.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { type Conflist, decodeConflist } from "../../../lib/cni/conflist.ts";
import { findPlugin } from "../../../lib/cni/find-plugin.ts";
import { decodeCniArgs } from "../../../lib/cni/request.ts";
import { type AttachmentRow, attachmentRows } from "../admin.ts";
import { collectLeftovers } from "../collect.ts";
import type { NodeContext } from "../context.ts";
import type { Dispatch } from "../dispatch.ts";
import { isBusy } from "../gc.ts";
import { isCriO } from "../merge.ts";
import type { SandboxRecord } from "../record.ts";
import { anyConflist, metaTypeOf } from "./choice.ts";
import { isOwnConflist } from "./conflist.ts";
import { confFileNames, NodeDefault } from "./default.ts";
import { takeAway, textOf } from "./files.ts";

/** One step of giving the node back. */
export interface RemovalStep {
  readonly step: "configuration" | "operations" | "attachments" | "executable";
  readonly done: boolean;
  readonly detail: string;
}

export interface Removal {
  readonly done: boolean;
  readonly steps: readonly RemovalStep[];
  /** What running pods still have of podnet. */
  readonly left: readonly AttachmentRow[];
}

/** Milliseconds that operations under way may take before the answer says that they go on. */
const calmWithin = 5_000;
const pause = 50;

/**
 * Gives the node back as far as it can be now; done when nothing of podnet is left. The order keeps pods starting and stopping: the
 * configuration goes first (only when another usable one is there), the executable last, when no pod needs its DEL any more.
 * Safe to repeat, and to be repeated until it is done. `force`: also where no other network configuration is there.
 */
export async function removeFromNode(to: Dispatch, force: boolean): Promise<Removal> {
  using signal = deadline(to.node.config.operationTimeout * 1000, "uninstall", [to.stopping]);
  const steps: RemovalStep[] = [await takeConfiguration(to, force)];
  if (steps[0]?.done === true) {
    steps.push(await calm(to));
    steps.push(await giveBackAll(to.node, signal));
    if (steps.every(({ done }) => done)) steps.push(takeExecutable(to.node));
  }
  const done = steps.length === 4 && steps.every((one) => one.done);
  return { done, steps, left: attachmentRows(to.node.store.all(), false) };
}

async function takeConfiguration(to: Dispatch, force: boolean): Promise<RemovalStep> {
  const step = "configuration";
  const { cniConfDir, socket } = to.node.config;
  const own = ownFiles(cniConfDir, socket);
  if (own.length > 0 && !force) {
    const fault = await nothingElse(to.node);
    if (fault !== undefined) {
      const detail = `kept: without it no pod could start: ${fault}: install another network first, or use --force`;
      return { step, done: false, detail };
    }
  }
  await to.installer?.release();
  for (const name of own) takeAway(join(cniConfDir, name));
  const names = own.map((name) => `"${join(cniConfDir, name)}"`).join(", ");
  return { step, done: true, detail: own.length === 0 ? "none is left" : `removed ${names}` };
}

/** Files that lead runtimes to this daemon, also renamed ones. */
function ownFiles(dir: string, socket: string): readonly string[] {
  return confFileNames(dir).filter((name) => isOwnConflist(textOf(join(dir, name)) ?? "", socket));
}

/** Why the runtime would have no network without podnet; undefined: it has one. */
async function nothingElse(node: NodeContext): Promise<string | undefined> {
  const { cniConfDir, cniBinDir } = node.config;
  const files = await new NodeDefault(cniConfDir, anyConflist).files();
  const faults: string[] = [];
  for (const { file, list, fault } of files) {
    if (list === undefined) faults.push(`"${file}": ${fault ?? "not whole"}`);
    else if (metaTypeOf(list) === "podnet") continue;
    else {
      try {
        await requireAll(list, cniBinDir);
        return undefined;
      } catch (error) {
        faults.push(`"${file}": ${errorText(error)}`);
      }
    }
  }
  return faults.length === 0 ? `"${cniConfDir}" has no other configuration` : faults.join("; ");
}

/** The runtime starts executables, also of the types that podnet has in process. */
async function requireAll({ plugins }: Conflist, cniPath: readonly string[]): Promise<void> {
  for (const { type, ipam } of plugins) {
    await findPlugin(type, cniPath);
    if (ipam?.type) await findPlugin(ipam.type, cniPath);
  }
}

async function calm({ gates }: Dispatch): Promise<RemovalStep> {
  const count = () =>
    [gates.add, gates.del].reduce((sum, { running, waiting }) => sum + running + waiting, 0);
  for (const until = performance.now() + calmWithin; count() > 0 && performance.now() < until; )
    await sleep(pause);
  const left = count();
  const detail = left === 0 ? "none is under way" : `${left} under way`;
  return { step: "operations", done: left === 0, detail };
}

async function giveBackAll(node: NodeContext, signal: AbortSignal): Promise<RemovalStep> {
  const { freed, faults } = await collectLeftovers(node, signal);
  const handed = await handOver(node);
  const left = node.store.size;
  const parts = [
    `${left} sandboxes still have networks of podnet`,
    ...(freed.length === 0 ? [] : [`${freed.length} attachments of sandboxes that are gone freed`]),
    ...(handed === 0 ? [] : [`${handed} sandboxes handed over to the node's own network`]),
    ...faults,
  ];
  return { step: "attachments", done: left === 0, detail: parts.join("; ") };
}

/**
 * A sandbox that has nothing but the node's own network, made by its own executables, needs no podnet to be deleted: the runtime asks what
 * is configured then. Except for CRI-O, which asks what was configured when it began.
 */
async function handOver(node: NodeContext): Promise<number> {
  const lists = (await new NodeDefault(node.config.cniConfDir, anyConflist).files()).flatMap(
    ({ list }) => (list === undefined ? [] : [list.name]),
  );
  const records = node.store.all().filter((record) => isTheirs(node, record, lists));
  for (const record of records) node.store.remove(record);
  return records.length;
}

function isTheirs(node: NodeContext, record: SandboxRecord, networks: readonly string[]): boolean {
  const [only, second] = record.attachments;
  if (only?.default !== true || second !== undefined || record.phase !== "attached") return false;
  if (isBusy(node, record)) return false;
  if (isCriO(record.netns ?? "", decodeCniArgs(record.cniArgs))) return false;
  const { name, plugins } = decodeConflist(only.conflist);
  return (
    networks.includes(name) && plugins.every(({ type }) => node.plugins.plugin(type, []).executable)
  );
}

function takeExecutable({ config }: NodeContext): RemovalStep {
  const path = join(config.cniBinDir[0] ?? "", "podnet");
  const user = confFileNames(config.cniConfDir).find((name) =>
    callsPodnet(textOf(join(config.cniConfDir, name)) ?? ""),
  );
  if (user !== undefined) {
    const file = join(config.cniConfDir, user);
    const detail = `kept: "${file}" calls podnet, at another socket: remove that file, then repeat this`;
    return { step: "executable", done: false, detail };
  }
  const was = textOf(path) !== undefined;
  if (was) takeAway(path);
  return {
    step: "executable",
    done: true,
    detail: was ? `removed "${path}"` : `"${path}" is not there`,
  };
}

/** A configuration of somebody else's podnet, without which its pods could not start. */
function callsPodnet(text: string): boolean {
  try {
    return metaTypeOf(decodeConflist(text)) === "podnet";
  } catch {
    return false;
  }
}

/** Milliseconds between attempts of a daemon that was told by its configuration to give the node back. */
const again = 3_000;

/** Gives the node back, again and again until it is done; says in an event whom it waits for. Disposing of it ends the attempts. */
export function keepRemoving(to: Dispatch): AsyncDisposable {
  const ended = new AbortController();
  const work = async (): Promise<void> => {
    while (!ended.signal.aborted) {
      const isDone = await removeFromNode(to, false).then(
        (removal) => report(to, removal),
        (error: unknown) => {
          to.node.log.error({ fault: errorText(error) }, "uninstall");
          return false;
        },
      );
      if (isDone) return;
      await sleep(again, undefined, { signal: ended.signal, ref: false }).catch(() => undefined);
    }
  };
  const working = work();
  return {
    [Symbol.asyncDispose]: async () => {
      ended.abort();
      await working;
    },
  };
}

function report({ installer }: Dispatch, { done, steps, left }: Removal): boolean {
  if (done) {
    installer?.gone(undefined);
    installer?.tell("Normal", "PodnetRemoved", "podnet is removed from this node");
    return true;
  }
  const open = steps.find((one) => !one.done);
  const pods = [...new Set(left.map(({ pod, containerId }) => pod ?? containerId))];
  const named = pods.length === 0 ? "" : `: ${pods.slice(0, 20).join(", ")}`;
  const message = `podnet waits to be removed: ${open?.step ?? ""}: ${open?.detail ?? ""}${named}`;
  installer?.gone(message);
  installer?.tell("Warning", "RemovalWaits", message);
  return false;
}
