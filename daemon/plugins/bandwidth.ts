import { createHash } from "node:crypto";
import { z } from "zod";
import { errorCode } from "../../lib/base/errors.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import type { Link } from "../../lib/netlink/model.ts";
import { type TokenBucket, tokenBucketParameters } from "../../lib/netlink/qdisc.ts";
import { TrafficControl } from "../../lib/netlink/traffic-control.ts";
import type { Plugin, PluginCall } from "./plugin.ts";
import { decodeConfig, optional } from "./shared/config.ts";
import { asCniError } from "./shared/errors.ts";
import { drift } from "./shared/interface.ts";
import { chooseIndex, requireSandbox } from "./shared/made-link.ts";

/**
 * Chained type `bandwidth`: what the pod receives and sends is held to a rate by token buckets, as the reference makes them: one at the root of the node's end
 * of the veth pair, one at an ifb link that what arrives from the pod is redirected through.
 */
export const bandwidth: Plugin = { add, del, check };

/** How long a packet waits at most, in microseconds. */
const latency = 25_000;
/** A burst of 4 GB and more does not fit the kernel's numbers. */
const mostBits = 0xffffffff * 8 - 1;

const rate = optional(z.int().min(0));
const burst = optional(
  z.int().min(0).max(mostBits, { error: "must be less than 34359738360 bits (4 GB)" }),
);
const rates = z.object({
  ingressRate: rate,
  ingressBurst: burst,
  egressRate: rate,
  egressBurst: burst,
});
const configField = rates.extend({ runtimeConfig: z.object({ bandwidth: optional(rates) }) });
type Rates = z.output<typeof rates>;

/** To the pod (`ingress`) and from it (`egress`); a direction that is absent is not limited. */
interface Limits {
  readonly ingress?: TokenBucket;
  readonly egress?: TokenBucket;
}

/** Inline keys win over the capability argument, as in the reference. */
function decodeBandwidth(call: PluginCall): Limits {
  const config = decodeConfig(
    configField,
    { ...call.config, runtimeConfig: call.runtimeConfig },
    { network: call.network, plugin: "bandwidth" },
  );
  const isInline = [
    config.ingressRate,
    config.ingressBurst,
    config.egressRate,
    config.egressBurst,
  ].some((value) => value !== undefined);
  const chosen: Rates | undefined = isInline ? config : config.runtimeConfig.bandwidth;
  const ingress = bucketOf(call, chosen, "ingress");
  const egress = bucketOf(call, chosen, "egress");
  return { ...(ingress && { ingress }), ...(egress && { egress }) };
}

/** Rate and burst come in bits, the kernel wants bytes. */
function bucketOf(
  call: PluginCall,
  chosen: Rates | undefined,
  direction: "ingress" | "egress",
): TokenBucket | undefined {
  const bits = chosen?.[`${direction}Rate`] ?? 0;
  const burstBits = chosen?.[`${direction}Burst`] ?? 0;
  if (bits === 0 && burstBits === 0) return undefined;
  if (bits >= 8 && burstBits >= 8)
    return { rate: Math.floor(bits / 8), burst: Math.floor(burstBits / 8), latency };
  const [missing, present] = bits < 8 ? ["Rate", "Burst"] : ["Burst", "Rate"];
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `decode bandwidth configuration of network "${call.network}": ${direction}${missing} must be at least 8 bits where ${direction}${present} is set`,
  );
}

async function add(call: PluginCall): Promise<CniResult> {
  const limits = decodeBandwidth(call);
  const result = call.prevResult;
  if (result === undefined) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `limit bandwidth of network "${call.network}": bandwidth must follow a plugin that makes an interface ("prevResult" is missing)`,
    );
  }
  if (limits.ingress === undefined && limits.egress === undefined) return result;
  const veth = await requireHostEnd(call);
  using control = TrafficControl.open(call.host.netns);
  try {
    if (limits.ingress !== undefined)
      await shape(call, control, { direction: "ingress", link: veth, bucket: limits.ingress });
    if (limits.egress === undefined) return result;
    const ifb = await addIfb(call, veth);
    await control.addRedirect(veth.index, ifb.index);
    await shape(call, control, { direction: "egress", link: ifb, bucket: limits.egress });
    const { name, mac } = ifb;
    return {
      ...result,
      interfaces: [...result.interfaces, mac === undefined ? { name } : { name, mac }],
    };
  } catch (error) {
    throw asCniError(
      error,
      cniCode.ioFailure,
      `limit bandwidth of interface "${call.ifName}" of network "${call.network}"`,
    );
  }
}

/** The kernel says EINVAL for a burst that is over before its clock has ticked. */
async function shape(
  call: PluginCall,
  control: TrafficControl,
  to: {
    readonly direction: "ingress" | "egress";
    readonly link: Link;
    readonly bucket: TokenBucket;
  },
): Promise<void> {
  const { direction, link, bucket } = to;
  try {
    await control.addTokenBucket(link.index, bucket);
  } catch (error) {
    if (errorCode(error) !== "EINVAL") throw error;
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `limit bandwidth of network "${call.network}": ${direction}Burst ${bucket.burst * 8} is too small for ${direction}Rate ${bucket.rate * 8}: must be at least what the rate brings in some microseconds`,
      { cause: error },
    );
  }
}

/** The node's end of the attachment's veth pair. Other kinds of interfaces have none, and no place where their traffic could be shaped. */
async function requireHostEnd(call: PluginCall): Promise<Link> {
  const inside = await requireSandbox(call).rtnl.getLink({ name: call.ifName });
  const outside =
    inside?.kind === "veth" && inside.link !== undefined
      ? await call.host.getLink({ index: inside.link })
      : undefined;
  if (outside?.kind === "veth" && outside.link === inside?.index) return outside;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `limit bandwidth of network "${call.network}": interface "${call.ifName}" is no veth pair with its other end on the node, which "bandwidth" needs`,
  );
}

function ifbName(call: PluginCall): string {
  const text = `${call.containerId}\0${call.ifName}\0${call.network}`;
  return `bwp${createHash("sha256").update(text).digest("hex").slice(0, 12)}`;
}

async function addIfb(call: PluginCall, veth: Link): Promise<Link> {
  const index = chooseIndex();
  const name = ifbName(call);
  await call.state.save({ ifb: index });
  await call.host.createLink({
    name,
    index,
    mtu: veth.mtu,
    txQueueLength: 0,
    up: true,
    data: { kind: "ifb" },
  });
  const link = await call.host.getLink({ index });
  if (link !== undefined) return link;
  throw new CniError(
    cniCode.tryAgainLater,
    `limit bandwidth of network "${call.network}": somebody deleted link "${name}" while it was being set up`,
  );
}

/** The buckets on the veth pair go with it. */
async function del(call: PluginCall): Promise<void> {
  const index = call.state.load()?.["ifb"];
  if (typeof index === "number") await call.host.deleteLink({ index });
}

async function check(call: PluginCall): Promise<void> {
  const limits = decodeBandwidth(call);
  if (limits.ingress === undefined && limits.egress === undefined) return;
  const veth = await requireHostEnd(call);
  using control = TrafficControl.open(call.host.netns);
  if (limits.ingress !== undefined)
    await requireBucket(call, control, { link: veth, bucket: limits.ingress });
  if (limits.egress === undefined) return;
  const ifb = await call.host.getLink({ name: ifbName(call) });
  if (ifb === undefined) throw drift(call, `link "${ifbName(call)}" is gone`);
  if (!ifb.up) throw drift(call, `link "${ifb.name}" is down, and drops what the pod sends`);
  await requireBucket(call, control, { link: ifb, bucket: limits.egress });
  if (!(await control.redirects(veth.index)).includes(ifb.index))
    throw drift(call, `"${veth.name}" does not send to "${ifb.name}" what arrives from the pod`);
}

async function requireBucket(
  call: PluginCall,
  control: TrafficControl,
  { link, bucket }: { readonly link: Link; readonly bucket: TokenBucket },
): Promise<void> {
  const found = (await control.qdiscs(link.index)).find(({ kind }) => kind === "tbf")?.tokenBucket;
  if (found === undefined) throw drift(call, `"${link.name}" has no token bucket`);
  const wanted = tokenBucketParameters(bucket);
  // The kernel gives the buffer back rounded by its own clock.
  const isSame =
    found.rate === wanted.rate &&
    found.limit === wanted.limit &&
    Math.abs(found.buffer - wanted.buffer) <= wanted.buffer / 1000 + 16;
  if (!isSame)
    throw drift(
      call,
      `the token bucket of "${link.name}" has rate ${found.rate} and limit ${found.limit} instead of ${wanted.rate} and ${wanted.limit}`,
    );
}
