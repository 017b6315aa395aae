import { existsSync } from "node:fs";
import { errorCode } from "../../../lib/base/errors.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import type { PluginConfig } from "../../../lib/cni/types.ts";
import type { LinkSpec } from "../../../lib/netlink/model.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import { error, type Finding, ok, orFine } from "./finding.ts";

/** A name that no interface can have: the kernel looks for the driver first, and then makes nothing. */
const impossible = "no/name";

const drivers = {
  bridge: { kind: "bridge" },
  veth: { kind: "veth", peer: { name: impossible } },
  macvlan: { kind: "macvlan", mode: 4 },
  ipvlan: { kind: "ipvlan", mode: 0 },
  vlan: { kind: "vlan", id: 2 },
  vrf: { kind: "vrf", table: 4_095 },
  dummy: { kind: "dummy" },
  ifb: { kind: "ifb" },
} as const satisfies Readonly<Record<string, LinkSpec["data"]>>;

type Driver = keyof typeof drivers;

/** Drivers that a plugin in process needs. */
const needs: Readonly<Record<string, readonly Driver[]>> = {
  bridge: ["bridge", "veth"],
  ptp: ["veth"],
  macvlan: ["macvlan"],
  ipvlan: ["ipvlan"],
  vlan: ["vlan"],
  vrf: ["vrf"],
  dummy: ["dummy"],
  bandwidth: ["ifb"],
};

/** What the networks' plugins need of the kernel, by the network that needs it first. */
export function neededFeatures(lists: readonly Conflist[]): Map<Driver | "tun", string> {
  const needed = new Map<Driver | "tun", string>();
  const add = (feature: Driver | "tun", network: string) => {
    if (!needed.has(feature)) needed.set(feature, network);
  };
  for (const { name, plugins } of lists) {
    for (const plugin of plugins) {
      for (const driver of featuresOf(plugin)) add(driver, name);
    }
  }
  return needed;
}

function featuresOf({ type }: PluginConfig): readonly (Driver | "tun")[] {
  return type === "tap" ? ["tun"] : (needs[type] ?? []);
}

/** Whether the kernel has what the networks need. Makes nothing; modules are loaded as an ADD would. */
export async function kernelFindings(
  host: Rtnetlink,
  lists: readonly Conflist[],
): Promise<Finding[]> {
  const needed = neededFeatures(lists);
  const findings: Finding[] = [];
  for (const [feature, network] of needed) {
    if (await isThere(host, feature)) continue;
    const text = `the kernel has no ${feature} driver, which network "${network}" needs`;
    findings.push(
      error("kernel", text, `load the module "${feature}", or change the network's type`),
    );
  }
  const names = [...needed.keys()].join(", ") || "nothing";
  return orFine(findings, ok("kernel", `has what the networks need: ${names}`));
}

async function isThere(host: Rtnetlink, feature: Driver | "tun"): Promise<boolean> {
  if (feature === "tun") return existsSync("/dev/net/tun");
  try {
    await host.createLink({ name: impossible, data: drivers[feature] });
    return true;
  } catch (cause) {
    return errorCode(cause) !== "EOPNOTSUPP";
  }
}
