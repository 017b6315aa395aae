import { z } from "zod";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import { isPciAddress } from "../devices/pci.ts";
import type { PluginCall } from "../plugin.ts";
import { decodeConfig, optional } from "../shared/config.ts";
import { macField } from "../shared/mac.ts";
import { mtuField } from "../shared/type-fields.ts";

/** Ethertypes of linux/if_ether.h. */
const protocols = { "802.1q": 0x8100, "802.1ad": 0x88a8 } as const;
/** IFLA_VF_LINK_STATE_* of linux/if_link.h. */
const linkStates = { auto: 0, enable: 1, disable: 2 } as const;

const text = optional(z.string()).transform((value) => (value === "" ? undefined : value));
const onOff = optional(z.enum(["", "on", "off"], { error: 'must be "on" or "off"' })).transform(
  (value) => (value === undefined || value === "" ? undefined : value === "on"),
);
const rate = optional(z.int().min(0).max(0xffffffff));

const guidForm = /^[0-9a-f]{2}(:[0-9a-f]{2}){7}$/i;
const guidField = optional(
  z.string().refine((value) => value === "" || guidForm.test(value), {
    error: (issue) => `"${issue.input}" is not a GUID, such as 02:00:00:00:00:00:00:01`,
  }),
);

const schema = z
  .object({
    deviceID: text,
    mac: optional(macField),
    mtu: mtuField,
    vlan: optional(
      z.int().min(0, { error: "must be 0 to 4094" }).max(4094, { error: "must be 0 to 4094" }),
    ),
    vlanQoS: optional(
      z.int().min(0, { error: "must be 0 to 7" }).max(7, { error: "must be 0 to 7" }),
    ),
    vlanProto: optional(
      z
        .string()
        .transform((value) => value.toLowerCase())
        .pipe(z.enum(["802.1q", "802.1ad"], { error: 'must be "802.1q" or "802.1ad"' })),
    ),
    min_tx_rate: rate,
    max_tx_rate: rate,
    spoofchk: onOff,
    trust: onOff,
    link_state: optional(
      z.enum(["", "auto", "enable", "disable"], {
        error: 'must be "auto", "enable" or "disable"',
      }),
    ),
    guid: guidField,
    args: optional(z.object({ cni: optional(z.object({ guid: guidField })) })),
    logLevel: text,
    logFile: text,
  })
  .superRefine((config, context) => {
    const fault = (path: string, message: string): void =>
      context.addIssue({ code: "custom", path: [path], message });
    const { vlan, vlanQoS, vlanProto } = config;
    if (vlan === undefined && vlanQoS !== undefined) fault("vlanQoS", 'needs "vlan"');
    if (vlan === undefined && vlanProto !== undefined) fault("vlanProto", 'needs "vlan"');
    if (vlan === 0 && (vlanQoS ?? 0) !== 0) fault("vlanQoS", 'needs a "vlan" other than 0');
    if (vlan === 0 && vlanProto === "802.1ad") {
      fault("vlanProto", '"802.1ad" needs a "vlan" other than 0');
    }
    const { min_tx_rate: least, max_tx_rate: most } = config;
    if (least !== undefined && most !== undefined && most !== 0 && least > most) {
      fault("min_tx_rate", `must not be above max_tx_rate (${most})`);
    }
  });

/** What a VF is set to before it goes into the pod; absent keys stay as they are. */
export interface VfSettings {
  readonly vlan?: number;
  readonly qos?: number;
  readonly vlanProtocol?: number;
  readonly mac?: string;
  readonly minTxRate?: number;
  readonly maxTxRate?: number;
  readonly spoofCheck?: boolean;
  readonly trust?: boolean;
  readonly linkState?: number;
  readonly nodeGuid?: string;
  readonly portGuid?: string;
}

export interface SriovConfig {
  /** PCI address of the virtual function. */
  readonly deviceId: string;
  readonly mac: string | undefined;
  readonly mtu: number | undefined;
  readonly settings: VfSettings;
  /** Of an InfiniBand function; part of `settings`, too. */
  readonly guid: string | undefined;
}

/**
 * The keys of sriov-cni. `deviceID` comes from the configuration or, as device plugins give it, from runtimeConfig. `logLevel` and `logFile` are accepted and
 * say nothing here: podnetd has one log. Throws a CniError with code 7.
 */
export function decodeSriov(
  call: PluginCall,
  mac: (key: string | undefined) => string | undefined,
): SriovConfig {
  const config = decodeConfig(schema, call.config, { network: call.network, plugin: "sriov" });
  const guid = requestedGuid(call, config);
  const given = call.runtimeConfig["deviceID"];
  const deviceId = typeof given === "string" && given !== "" ? given : config.deviceID;
  if (deviceId === undefined || !isPciAddress(deviceId)) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `network "${call.network}": sriov: deviceID "${deviceId ?? ""}": must be the PCI address of a virtual function: does the network's resource reach the pod?`,
    );
  }
  const chosen = mac(config.mac);
  return {
    deviceId: deviceId.toLowerCase(),
    mac: chosen,
    mtu: config.mtu,
    settings: {
      ...settingsOf(config, chosen),
      ...(guid === undefined ? {} : { nodeGuid: guid, portGuid: guid }),
    },
    guid,
  };
}

/** As in ib-sriov-cni: runtimeConfig `infinibandGUID` wins over `args.cni.guid`, that over the key `guid`. */
function requestedGuid(call: PluginCall, config: z.output<typeof schema>): string | undefined {
  const asked = call.runtimeConfig["infinibandGUID"];
  const where = { network: call.network, plugin: "sriov runtimeConfig.infinibandGUID in the" };
  const runtime = decodeConfig(
    z.object({ infinibandGUID: guidField }),
    { infinibandGUID: asked },
    where,
  );
  const guids = [runtime.infinibandGUID, config.args?.cni?.guid, config.guid];
  return guids.find((guid) => guid !== undefined && guid !== "")?.toLowerCase();
}

function settingsOf(config: z.output<typeof schema>, mac: string | undefined): VfSettings {
  const { vlan, vlanQoS, vlanProto, spoofchk, trust } = config;
  const { min_tx_rate: minTxRate, max_tx_rate: maxTxRate, link_state: state } = config;
  return {
    ...(vlan === undefined
      ? {}
      : { vlan, qos: vlanQoS ?? 0, vlanProtocol: protocols[vlanProto ?? "802.1q"] }),
    ...(mac === undefined ? {} : { mac }),
    ...(minTxRate === undefined ? {} : { minTxRate }),
    ...(maxTxRate === undefined ? {} : { maxTxRate }),
    ...(spoofchk === undefined ? {} : { spoofCheck: spoofchk }),
    ...(trust === undefined ? {} : { trust }),
    ...(state === undefined || state === "" ? {} : { linkState: linkStates[state] }),
  };
}
