import { createHostLocal } from "../ipam/host-local.ts";
import type { IpamPlugin } from "../ipam/ipam.ts";
import { createStatic } from "../ipam/static.ts";
import { bandwidth } from "./bandwidth.ts";
import { bridge } from "./bridge.ts";
import { dummy } from "./dummy.ts";
import { hostDevice } from "./host-device.ts";
import { ipvlan } from "./ipvlan.ts";
import { loopback } from "./loopback.ts";
import { macvlan } from "./macvlan.ts";
import type { Plugin } from "./plugin.ts";
import { portmap } from "./portmap.ts";
import { ptp } from "./ptp.ts";
import { sbr } from "./sbr.ts";
import { sriov } from "./sriov.ts";
import { tap } from "./tap.ts";
import { createTuning } from "./tuning.ts";
import { vlan } from "./vlan.ts";
import { vrf } from "./vrf.ts";

/** The plugins that podnetd has in process, by `type`. Every other type is an executable. One line a type, in alphabetical order. */
export const inProcessPlugins: ReadonlyMap<string, Plugin> = new Map([
  ["bandwidth", bandwidth],
  ["bridge", bridge],
  ["dummy", dummy],
  ["host-device", hostDevice],
  ["ipvlan", ipvlan],
  ["loopback", loopback],
  ["macvlan", macvlan],
  ["portmap", portmap],
  ["ptp", ptp],
  ["sbr", sbr],
  ["sriov", sriov],
  ["tap", tap],
  ["tuning", createTuning()],
  ["vlan", vlan],
  ["vrf", vrf],
]);

/** The IPAM plugins that podnetd has in process, by `ipam.type`, with the memory that they keep between calls: one set for a process. */
export function createInProcessIpam(): ReadonlyMap<string, IpamPlugin> {
  return new Map([
    ["host-local", createHostLocal()],
    ["static", createStatic()],
  ]);
}
