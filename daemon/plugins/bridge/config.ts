import { z } from "zod";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { CniDns } from "../../../lib/cni/types.ts";
import type { NetworkCall, PluginCall } from "../plugin.ts";
import { decodeConfig, dnsField, optional } from "../shared/config.ts";
import { macField, randomMac } from "../shared/mac.ts";
import { isInterfaceName } from "../shared/names.ts";

/** A bridge network's configuration with its defaults. */
export interface BridgeConfig {
  readonly bridge: string;
  readonly isGateway: boolean;
  readonly isDefaultGateway: boolean;
  readonly forceAddress: boolean;
  readonly ipMasq: boolean;
  readonly mtu: number | undefined;
  readonly hairpinMode: boolean;
  readonly promiscMode: boolean;
  /** undefined: untagged. */
  readonly vlan: number | undefined;
  /** The tagged VLANs of a trunk port, in order; undefined when the port is none. */
  readonly trunk: readonly number[] | undefined;
  readonly preserveDefaultVlan: boolean;
  readonly enableDad: boolean;
  readonly disableContainerInterface: boolean;
  readonly portIsolation: boolean;
  /** Frames from another hardware address than the interface's are dropped. */
  readonly macSpoofCheck: boolean;
  /** undefined: chance decides. */
  readonly mac: string | undefined;
  /** Of the network configuration; wins over what IPAM says. */
  readonly dns: CniDns | undefined;
}

const highestVlan = 4094;
const flag = optional(z.boolean());
const vlanId = z.int().min(1).max(highestVlan);

const trunkEntry = z
  .object({ minID: optional(vlanId), maxID: optional(vlanId), id: optional(vlanId) })
  .partial()
  .refine(({ minID, maxID }) => (minID === undefined) === (maxID === undefined), {
    error: "minID and maxID go together, one is missing",
  })
  .refine(({ minID, maxID }) => minID === undefined || maxID === undefined || minID <= maxID, {
    error: (issue) => `minID is greater than maxID: ${JSON.stringify(issue.input)}`,
  });

const schema = z.object({
  bridge: optional(
    z.string().refine((name) => name === "" || isInterfaceName(name), {
      error: (issue) =>
        `"${issue.input}" is not an interface name: 1 to 15 characters, no "/", ":" or space`,
    }),
  ),
  isGateway: flag,
  isDefaultGateway: flag,
  forceAddress: flag,
  ipMasq: flag,
  ipMasqBackend: optional(z.enum(["iptables", "nftables"])),
  mtu: optional(z.int()),
  hairpinMode: flag,
  promiscMode: flag,
  vlan: optional(z.int().min(0).max(highestVlan)),
  vlanTrunk: optional(z.array(trunkEntry)),
  preserveDefaultVlan: flag,
  macspoofchk: flag,
  enabledad: flag,
  disableContainerInterface: flag,
  portIsolation: flag,
  dns: optional(dnsField),
  args: optional(z.object({ cni: optional(z.object({ mac: optional(macField) })) })),
});
const runtimeSchema = z.object({ mac: optional(macField) });

/** Decodes the configuration of a call. Throws a CniError (code 7) with the fields that are wrong. */
export function readBridgeConfig(call: PluginCall): BridgeConfig {
  const where = { network: call.network, plugin: "bridge" };
  const raw = decodeConfig(schema, call.config, where);
  const runtime = decodeConfig(runtimeSchema, call.runtimeConfig, {
    ...where,
    plugin: "bridge runtimeConfig in the",
  });
  const requested = runtime.mac ?? raw.args?.cni?.mac ?? environmentMac(call);
  const macSpoofCheck = raw.macspoofchk === true;
  const config: BridgeConfig = {
    bridge: raw.bridge || "cni0",
    isGateway: raw.isGateway === true || raw.isDefaultGateway === true,
    isDefaultGateway: raw.isDefaultGateway === true,
    forceAddress: raw.forceAddress === true,
    ipMasq: raw.ipMasq === true,
    mtu: raw.mtu !== undefined && raw.mtu > 0 ? raw.mtu : undefined,
    hairpinMode: raw.hairpinMode === true,
    promiscMode: raw.promiscMode === true,
    vlan: raw.vlan || undefined,
    trunk: raw.vlanTrunk === undefined ? undefined : trunkVlans(raw.vlanTrunk),
    preserveDefaultVlan: raw.preserveDefaultVlan === true,
    enableDad: raw.enabledad === true,
    disableContainerInterface: raw.disableContainerInterface === true,
    portIsolation: raw.portIsolation === true,
    macSpoofCheck,
    // Where it is checked it is chosen here: what the pod may make of it once the interface exists must not count.
    mac: requested ?? (macSpoofCheck ? randomMac() : undefined),
    dns: hasDns(raw.dns) ? raw.dns : undefined,
  };
  refuseContradictions(call, config);
  return config;
}

type TrunkEntry = z.output<typeof trunkEntry>;

function trunkVlans(entries: readonly TrunkEntry[]): readonly number[] {
  const ids = new Set<number>();
  for (const { minID, maxID, id } of entries) {
    if (id !== undefined) ids.add(id);
    if (minID === undefined || maxID === undefined) continue;
    for (let vlan = minID; vlan <= maxID; vlan++) ids.add(vlan);
  }
  return [...ids].sort((left, right) => left - right);
}

function environmentMac(call: PluginCall): string | undefined {
  const text = call.cniArgs.get("MAC") ?? "";
  const outcome = macField.safeParse(text);
  if (outcome.success) return outcome.data;
  throw new CniError(
    cniCode.invalidEnvironment,
    `CNI_ARGS of network "${call.network}": MAC="${text}" is not a hardware address`,
  );
}

function hasDns(dns: CniDns | undefined): boolean {
  return dns !== undefined && Object.values(dns).some((value) => value !== "");
}

function refuseContradictions(call: NetworkCall, config: BridgeConfig): void {
  const type = call.config.ipam?.type ?? "";
  const faults = [
    config.hairpinMode && config.promiscMode && "hairpinMode and promiscMode exclude each other",
    config.disableContainerInterface &&
      type !== "" &&
      `disableContainerInterface and ipam "${type}" exclude each other: an interface that is down has no use for addresses`,
  ].filter((fault) => fault !== false);
  if (faults.length === 0) return;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `bridge configuration of network "${call.network}": ${faults.join("; ")}`,
  );
}
