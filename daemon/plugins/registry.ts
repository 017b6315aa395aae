import { createHostLocal } from "../ipam/host-local.ts";
import type { IpamPlugin } from "../ipam/ipam.ts";
import { createStatic } from "../ipam/static.ts";
import { bridge } from "./bridge.ts";
import { dummy } from "./dummy.ts";
import { hostDevice } from "./host-device.ts";
import { ipvlan } from "./ipvlan.ts";
import { loopback } from "./loopback.ts";
import { macvlan } from "./macvlan.ts";
import type { Plugin } from "./plugin.ts";
import { ptp } from "./ptp.ts";
import { tap } from "./tap.ts";
import { vlan } from "./vlan.ts";

/** The plugins that podnetd has in process, by `type`. Every other type is an executable. One line a type, in alphabetical order. */
export const inProcessPlugins: ReadonlyMap<string, Plugin> = new Map([
  ["bridge", bridge],
  ["dummy", dummy],
  ["host-device", hostDevice],
  ["ipvlan", ipvlan],
  ["loopback", loopback],
  ["macvlan", macvlan],
  ["ptp", ptp],
  ["tap", tap],
  ["vlan", vlan],
]);

/** The IPAM plugins that podnetd has in process, by `ipam.type`, with the memory that they keep between calls: one set for a process. */
export function createInProcessIpam(): ReadonlyMap<string, IpamPlugin> {
  return new Map([
    ["host-local", createHostLocal()],
    ["static", createStatic()],
  ]);
}
