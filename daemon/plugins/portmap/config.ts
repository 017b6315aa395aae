import { z } from "zod";
import { type Ip, isIp, parseIp } from "../../../lib/base/ip.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { NetworkCall, PluginCall } from "../plugin.ts";
import { decodeConfig, optional } from "../shared/config.ts";
import { type PortCondition, parseCondition } from "./conditions.ts";

/** Numbers of the IP protocols that have ports that podnet maps. */
export const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

const port = z.int().min(1).max(65535);

/** One entry of the capability argument `portMappings`. */
const mappingField = z.object({
  hostPort: port,
  containerPort: port,
  // The kubelet's CRI writes capitals, configurations mostly do not.
  protocol: z
    .string({ error: "is missing: must be tcp, udp or sctp" })
    .transform((text) => text.toLowerCase())
    .pipe(z.enum(["tcp", "udp", "sctp"])),
  hostIP: optional(
    z
      .string()
      .refine((text) => text === "" || isIp(text), {
        error: (issue) => `"${issue.input}" is not an IP address`,
        abort: true,
      })
      .transform((text) => (text === "" ? undefined : parseIp(text))),
  ),
});

/** A port of the node that leads to a port of the pod. Without `hostIP`, on every address of the node. */
export interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: keyof typeof protocols;
  readonly hostIP: Ip | undefined;
}

const configField = z.object({
  backend: optional(z.enum(["iptables", "nftables"])),
  snat: optional(z.boolean()),
  masqAll: optional(z.boolean()),
  markMasqBit: optional(z.int().min(0).max(31)),
  externalSetMarkChain: optional(z.string()),
  conditionsV4: optional(z.array(z.string())),
  conditionsV6: optional(z.array(z.string())),
  runtimeConfig: z.object({ portMappings: optional(z.array(mappingField)) }),
});

/** A portmap configuration, decoded. */
export interface PortmapConfig {
  /** Whether a pod that reaches itself through its host port, and the node's own loopback, get an answer. */
  readonly snat: boolean;
  readonly masqueradeAll: boolean;
  /** Whether the pods of the pod's own subnet reach it through its host port; the reference's nftables backend leaves it to the pod itself. */
  readonly wholeSubnet: boolean;
  readonly conditions: Readonly<Record<4 | 6, readonly PortCondition[]>>;
  readonly mappings: readonly PortMapping[];
}

/**
 * Decodes configuration and capability argument. `backend` is accepted and always nftables; said in so many words it refuses, as the reference does, the
 * keys that only iptables can have. `markMasqBit` and `externalSetMarkChain` name how iptables rules mark what is to be masqueraded: the effect
 * is the same without. Throws a CniError (code 7) that names every field that is wrong.
 */
export function decodePortmap(
  call: NetworkCall & Partial<Pick<PluginCall, "runtimeConfig">>,
): PortmapConfig {
  const config = decodeConfig(
    configField,
    { ...call.config, runtimeConfig: call.runtimeConfig ?? {} },
    { network: call.network, plugin: "portmap" },
  );
  const { portMappings } = config.runtimeConfig;
  if (config.markMasqBit !== undefined && config.externalSetMarkChain !== undefined) {
    throw invalid(call, '"markMasqBit" and "externalSetMarkChain" exclude each other');
  }
  if (config.backend === "nftables") refuseIptables(call, config);
  return {
    snat: config.snat ?? true,
    masqueradeAll: config.masqAll === true && config.backend !== "nftables",
    wholeSubnet: config.backend !== "nftables",
    conditions: {
      4: decodeConditions(call, "conditionsV4", config.conditionsV4),
      6: decodeConditions(call, "conditionsV6", config.conditionsV6),
    },
    mappings: requireDistinct(call, portMappings ?? []),
  };
}

function refuseIptables(call: NetworkCall, config: z.output<typeof configField>): void {
  const keys = [
    ...(config.externalSetMarkChain === undefined ? [] : ["externalSetMarkChain"]),
    ...(["conditionsV4", "conditionsV6"] as const).filter((key) =>
      config[key]?.some((word) => word.startsWith("-") || word === "!"),
    ),
  ];
  if (keys.length > 0)
    throw invalid(call, `"${keys.join('", "')}" is iptables' and "backend" is "nftables"`);
}

function decodeConditions(
  call: NetworkCall,
  key: "conditionsV4" | "conditionsV6",
  words: readonly string[] | undefined,
): readonly PortCondition[] {
  if (words === undefined || words.length === 0) return [];
  const parsed = parseCondition(words, key === "conditionsV4" ? 4 : 6);
  if (typeof parsed === "string") throw invalid(call, `"${key}": ${parsed}`);
  return parsed;
}

function requireDistinct(
  call: NetworkCall,
  mappings: readonly PortMapping[],
): readonly PortMapping[] {
  const seen = new Set<string>();
  for (const { hostPort, protocol, hostIP } of mappings) {
    const key = `${protocol} ${hostPort} ${hostIP?.family} ${hostIP?.value}`;
    if (seen.has(key))
      throw invalid(call, `"portMappings" has host port ${hostPort}/${protocol} twice`);
    seen.add(key);
  }
  return mappings;
}

function invalid(call: NetworkCall, reason: string): CniError {
  return new CniError(
    cniCode.invalidNetworkConfig,
    `decode portmap configuration of network "${call.network}": ${reason}`,
  );
}
