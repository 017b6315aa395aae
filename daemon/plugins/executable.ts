import type { JsonObject } from "../../lib/base/json.ts";
import type { DelegateCgroups } from "../../lib/cni/delegate-cgroup.ts";
import { type DerivedKeys, deriveConfig } from "../../lib/cni/derive.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { type InvocationLimits, invokePlugin } from "../../lib/cni/invoke.ts";
import { parseJsonObject } from "../../lib/cni/json-text.ts";
import { probeVersions } from "../../lib/cni/probe-versions.ts";
import { decodeResult } from "../../lib/cni/result.ts";
import type { CniResult, CniVerb, CniVersion, ValidAttachment } from "../../lib/cni/types.ts";
import {
  chooseVersion,
  impliedCniVersion,
  isSupportedVersion,
  verbAllowed,
  versionAtLeast,
} from "../../lib/cni/versions.ts";
import type { NetworkCall, Plugin, PluginCall } from "./plugin.ts";

/** How this node starts executables; one for all of them. */
export interface DelegateHost {
  /** The static podnet, whose `--run-delegate` enters cgroup and mount namespace. Without it neither is done. */
  readonly helper?: string;
  /** The mount namespace that delegates run in: the host's, when podnetd itself is in a container. */
  readonly mntns?: string;
  readonly cgroups?: DelegateCgroups;
  readonly limits?: Partial<InvocationLimits>;
  /** Gets what plugins that succeeded wrote on stderr. */
  readonly onStderr?: (type: string, text: string) => void;
}

/** Which executable, and how it is started. */
export interface ExecutableOptions {
  readonly type: string;
  readonly cniPath: readonly string[];
  readonly host: DelegateHost;
}

/** An attachment's verb at the version that the plugin is called with. */
interface AttachmentStep {
  readonly verb: "ADD" | "DEL" | "CHECK";
  readonly cniVersion: CniVersion;
}

/** Older versions that plugins turned out to need, by host, directories and type. */
const olderVersions = new WeakMap<DelegateHost, Map<string, CniVersion>>();

/**
 * A plugin that is an executable on CNI_PATH, run with the CNI protocol. `call.config` names network and version (`name`,
 * `cniVersion`). It runs its own IPAM plugin, so `call.ipam` stays unused. Verbs that the version does not have (CHECK below 0.4.0,
 * STATUS and GC below 1.1.0) succeed without a call. One that does not speak the configured version is called with the newest older
 * one that it does: its configuration and result are converted.
 */
export class ExecutablePlugin implements Plugin {
  readonly #options: ExecutableOptions;

  constructor(options: ExecutableOptions) {
    this.#options = options;
  }

  add(call: PluginCall): Promise<CniResult> {
    return this.#negotiated(call, async (cniVersion) => {
      const stdout = await this.#attachmentCall(call, { verb: "ADD", cniVersion });
      return decodeAnswer(this.#options.type, stdout, cniVersion);
    });
  }

  async del(call: PluginCall): Promise<void> {
    await this.#negotiated(call, (cniVersion) =>
      this.#attachmentCall(call, { verb: "DEL", cniVersion }),
    );
  }

  async check(call: PluginCall): Promise<void> {
    await this.#negotiated(call, async (cniVersion) => {
      if (verbAllowed("CHECK", cniVersion))
        await this.#attachmentCall(call, { verb: "CHECK", cniVersion });
    });
  }

  async status(call: NetworkCall): Promise<void> {
    await this.#networkCall("STATUS", call, {});
  }

  async gc(call: NetworkCall, validAttachments: readonly ValidAttachment[]): Promise<void> {
    await this.#networkCall("GC", call, { validAttachments });
  }

  #attachmentCall(call: PluginCall, { verb, cniVersion }: AttachmentStep): Promise<string> {
    // The specification has prevResult for DEL since 0.4.0 only.
    const wanted = verb !== "DEL" || versionAtLeast(cniVersion, "0.4.0");
    const config = deriveConfig(call.config, {
      name: call.network,
      cniVersion,
      runtimeConfig: call.runtimeConfig,
      prevResult: wanted ? call.prevResult : undefined,
    });
    return this.#invoke(call, { verb, config, attachment: call });
  }

  #networkCall(
    verb: "STATUS" | "GC",
    call: NetworkCall,
    keys: Pick<DerivedKeys, "validAttachments">,
  ): Promise<void> {
    return this.#negotiated(call, async (cniVersion) => {
      if (!verbAllowed(verb, cniVersion)) return;
      const config = deriveConfig(call.config, { name: call.network, cniVersion, ...keys });
      await this.#invoke(call, { verb, config });
    });
  }

  /**
   * Works at the configured version, and at an older one if the plugin refuses that one. A plugin checks the version before
   * anything else, so nothing has happened by then.
   */
  async #negotiated<T>(call: NetworkCall, work: (version: CniVersion) => Promise<T>): Promise<T> {
    const configured = versionOf(call);
    const known = olderVersions.get(this.#options.host)?.get(this.#key());
    const version = known !== undefined && versionAtLeast(configured, known) ? known : configured;
    try {
      return await work(version);
    } catch (error) {
      if (!(error instanceof CniError) || error.code !== cniCode.incompatibleVersion) throw error;
      const other = await this.#spoken(configured, call.signal);
      if (other === undefined || other === version) throw error;
      return await work(other);
    }
  }

  /** The newest version up to `limit` that the plugin speaks; remembered, so that it is asked once. */
  async #spoken(limit: CniVersion, signal: AbortSignal): Promise<CniVersion | undefined> {
    const { type, cniPath, host } = this.#options;
    const { limits = {} } = host;
    const spoken = await probeVersions({
      type,
      cniPath,
      limits,
      signal,
      helper: helperFor(host, undefined),
    });
    const usable = spoken.filter((one) => isSupportedVersion(one) && versionAtLeast(limit, one));
    const chosen = chooseVersion(usable);
    if (chosen !== undefined) {
      const byKey = olderVersions.get(host) ?? new Map<string, CniVersion>();
      olderVersions.set(host, byKey.set(this.#key(), chosen));
    }
    return chosen;
  }

  #key(): string {
    return [this.#options.type, ...this.#options.cniPath].join(":");
  }

  async #invoke(call: NetworkCall, request: Request): Promise<string> {
    const { type, cniPath, host } = this.#options;
    await using cgroup = await cgroupFor(host, cgroupName(type, request.attachment));
    const { stdout, stderr } = await invokePlugin({
      type,
      cniPath,
      verb: request.verb,
      config: request.config,
      ...attachmentVariables(request.attachment),
      helper: helperFor(host, cgroup?.procs),
      limits: host.limits ?? {},
      signal: call.signal,
    });
    if (stderr !== "") host.onStderr?.(type, stderr);
    return stdout;
  }
}

/**
 * An IPAM plugin that is an executable: the same calls with the whole configuration, answered by addresses, routes and DNS
 * alone. Interfaces that its result has all the same are dropped.
 */
export function executableIpam(options: ExecutableOptions): Plugin {
  const plugin = new ExecutablePlugin(options);
  return {
    add: async (call) => addressesOnly(await plugin.add(call)),
    del: (call) => plugin.del(call),
    check: (call) => plugin.check(call),
    status: (call) => plugin.status(call),
    gc: (call, valid) => plugin.gc(call, valid),
  };
}

interface Request {
  readonly verb: CniVerb;
  readonly config: JsonObject;
  readonly attachment?: PluginCall;
}

function addressesOnly(result: CniResult): CniResult {
  const ips = result.ips.map(({ interface: _, ...ip }) => ip);
  return { ...result, interfaces: [], ips };
}

/** What the configuration was given as its version by whoever made the call. */
function versionOf(call: NetworkCall): CniVersion {
  const version = call.config["cniVersion"];
  if (typeof version === "string" && isSupportedVersion(version)) return version;
  return impliedCniVersion;
}

function decodeAnswer(type: string, stdout: string, version: CniVersion): CniResult {
  try {
    return decodeResult(parseJsonObject(stdout, "CNI result"), version);
  } catch (error) {
    throw badAnswer(type, stdout, error);
  }
}

function badAnswer(type: string, stdout: string, cause: unknown): CniError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const details = stdout === "" ? "stdout is empty" : stdout.slice(0, 2000);
  const message = `plugin "${type}": ADD answered with no usable result: ${reason}`;
  return new CniError(cniCode.delegateFailed, message, { details, cause });
}

function attachmentVariables(call: PluginCall | undefined) {
  if (call === undefined) return {};
  const { containerId, netnsPath, ifName, cniArgs } = call;
  return { containerId, netnsPath, ifName, args: withoutOwn(cniArgs) };
}

/** Plugins refuse CNI_ARGS that they don't know (unless told to ignore them), so podnet's own never reach them. */
function withoutOwn(args: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  return new Map([...args].filter(([key]) => !key.startsWith("PODNET_")));
}

/** Only the helper can enter one. */
async function cgroupFor({ helper, cgroups }: DelegateHost, name: string) {
  return helper === undefined ? undefined : await cgroups?.create(name);
}

function helperFor({ helper, mntns }: DelegateHost, cgroupProcs: string | undefined) {
  return helper === undefined ? undefined : { path: helper, mntns, cgroupProcs };
}

function cgroupName(type: string, attachment: PluginCall | undefined): string {
  if (attachment === undefined) return type;
  return `${attachment.containerId.slice(0, 64)}-${attachment.ifName}-${type}`;
}
