// Runs podnet's in-process plugins in the namespace that this process was started in: a request a line on stdin, an answer a line
// on stdout. Started by in-process.ts.
import { createInterface } from "node:readline";
import { bindIpam } from "../../daemon/ipam/ipam.ts";
import type { Plugin, PluginCall, PluginState, Sandbox } from "../../daemon/plugins/plugin.ts";
import { createInProcessIpam, inProcessPlugins } from "../../daemon/plugins/registry.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { Netns } from "../../lib/base/netns.ts";
import { CniError } from "../../lib/cni/errors.ts";
import { decodeCniArgs } from "../../lib/cni/request.ts";
import { decodeResult, encodeResult } from "../../lib/cni/result.ts";
import {
  type CniResult,
  newestCniVersion,
  type PluginConfig,
  type ValidAttachment,
} from "../../lib/cni/types.ts";
import { isSupportedVersion } from "../../lib/cni/versions.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { InProcessRun } from "./in-process.ts";

const host = Rtnetlink.open();
const ipams = createInProcessIpam();
const states = new Map<string, JsonObject>();

function stateOf(run: InProcessRun): PluginState {
  const key = `${run.containerId}/${run.ifName}/${run.type}`;
  return {
    load: () => states.get(key),
    save: async (state) => {
      states.set(key, state);
    },
  };
}

function openSandbox(path: string | undefined): Sandbox | undefined {
  if (path === undefined || path === "") return undefined;
  try {
    const netns = Netns.open(path);
    return { path, netns, rtnl: Rtnetlink.open(netns) };
  } catch {
    return undefined;
  }
}

/** A bare IPAM type runs as a plugin of its own, as its executable would. */
function pluginOf(run: InProcessRun): Plugin {
  const plugin = inProcessPlugins.get(run.type);
  if (plugin !== undefined) return plugin;
  const ipam = ipams.get(run.type);
  if (ipam === undefined) throw new Error(`no in-process plugin "${run.type}"`);
  return ipam;
}

function callOf(run: InProcessRun, sandbox: Sandbox | undefined): PluginCall {
  const { runtimeConfig = {}, prevResult, ...config } = run.config;
  const version = String(config["cniVersion"] ?? newestCniVersion);
  const decoded: CniResult | undefined =
    prevResult === undefined
      ? undefined
      : decodeResult(prevResult, isSupportedVersion(version) ? version : newestCniVersion);
  const call: PluginCall = {
    network: String(config["name"] ?? ""),
    config: config as unknown as PluginConfig,
    host,
    signal: AbortSignal.timeout((run.seconds ?? 30) * 1000),
    containerId: run.containerId,
    ifName: run.ifName,
    sandbox,
    netnsPath: run.netns,
    runtimeConfig: runtimeConfig as JsonObject,
    cniArgs: decodeCniArgs(run.args ?? ""),
    prevResult: decoded,
    ipam: undefined,
    state: stateOf(run),
  };
  const ipam = ipams.get(call.config.ipam?.type ?? "");
  return ipam === undefined || ipams.has(run.type) ? call : { ...call, ipam: bindIpam(ipam, call) };
}

async function perform(run: InProcessRun): Promise<JsonObject | undefined> {
  const sandbox = openSandbox(run.netns);
  try {
    const call = callOf(run, sandbox);
    const plugin = pluginOf(run);
    if (run.verb === "ADD") {
      const version = String(run.config["cniVersion"] ?? "");
      const result = await plugin.add(call);
      return encodeResult(result, isSupportedVersion(version) ? version : newestCniVersion);
    }
    if (run.verb === "DEL") await plugin.del(call);
    if (run.verb === "CHECK") await plugin.check(call);
    if (run.verb === "STATUS") await plugin.status?.(call);
    if (run.verb === "GC") {
      const valid = (run.config["cni.dev/valid-attachments"] ?? []) as unknown as ValidAttachment[];
      await plugin.gc?.(call, valid);
      await ipams.get(call.config.ipam?.type ?? "")?.gc?.(call, valid);
    }
    return undefined;
  } finally {
    sandbox?.rtnl.close();
    sandbox?.netns.close();
  }
}

async function answer(line: string): Promise<void> {
  const { id, run } = JSON.parse(line) as { id: number; run: InProcessRun };
  try {
    const json = await perform(run);
    process.stdout.write(`${JSON.stringify({ id, status: 0, json })}\n`);
  } catch (error) {
    const code = error instanceof CniError ? error.code : -1;
    const msg = error instanceof Error ? error.message : String(error);
    const stack = error instanceof CniError ? undefined : (error as Error).stack;
    const json = { code, msg, ...(stack !== undefined && { details: stack }) };
    process.stdout.write(`${JSON.stringify({ id, status: 1, json })}\n`);
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => void answer(line));
lines.on("close", () => host.close());
