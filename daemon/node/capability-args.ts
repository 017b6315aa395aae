import type { Bandwidth, Selection } from "../../lib/api/selection.ts";
import type { JsonObject } from "../../lib/base/json.ts";

/** What a selection asks of its network, as CNI's capability arguments (NPWG 1.3, section 4.1.2; CNI's CONVENTIONS). */
export function capabilityArgsOf(selection: Selection): JsonObject {
  const { ips, mac, infinibandGuid, portMappings, bandwidth, deviceId } = selection;
  return {
    ...(ips === undefined ? {} : { ips }),
    ...(mac === undefined ? {} : { mac }),
    ...(infinibandGuid === undefined ? {} : { infinibandGUID: infinibandGuid }),
    ...(portMappings === undefined
      ? {}
      : { portMappings: portMappings.map((mapping) => ({ ...mapping })) }),
    ...(bandwidth === undefined ? {} : { bandwidth: withBursts(bandwidth) }),
    ...(deviceId === undefined ? {} : { deviceID: deviceId }),
  };
}

/** Least burst in bits: 32 KiB, a few full packets. */
const leastBurst = 262_144;
/** Most burst in bits that the kernel's token bucket takes: its bytes are a 32 bit number. */
const mostBurst = (2 ** 32 - 1) * 8;

/** The shaping plugin wants a burst with each rate, the standard does not: what a tenth of a second brings is a burst. */
function withBursts({ ingressRate, ingressBurst, egressRate, egressBurst }: Bandwidth): JsonObject {
  return {
    ...(ingressRate === undefined
      ? {}
      : { ingressRate, ingressBurst: ingressBurst ?? burstOf(ingressRate) }),
    ...(egressRate === undefined
      ? {}
      : { egressRate, egressBurst: egressBurst ?? burstOf(egressRate) }),
  };
}

function burstOf(rate: number): number {
  return Math.min(Math.max(Math.ceil(rate / 10), leastBurst), mostBurst);
}
