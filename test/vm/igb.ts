import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { after } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { sriov } from "../../daemon/plugins/sriov.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { Attached } from "../helpers/attached.ts";
import { Lab, type Place, runCommand } from "../helpers/lab.ts";

// The machine itself is the node here: the kernel gives devices back to the first network namespace, and it is thrown away anyway.
export const lab = new Lab();
export const pf = "eth0";
const other = "eth1";
const vfs = new Map<number, string>();

/** Runs a shell line on the machine. */
export function sh(command: string): string {
  return runCommand(["sh", "-c", command]);
}

/** Waits for a condition, ten seconds at most. */
export async function eventually(what: string, holds: () => boolean): Promise<void> {
  for (let tries = 0; !holds(); tries += 1) {
    if (tries > 100) throw new Error(`${what} did not come`);
    await delay(100);
  }
}

// Through 0, else the kernel answers EBUSY; making VFs resets the card.
sh(`ip link set ${pf} up; ip link set ${other} up`);
sh(
  `echo 0 >/sys/class/net/${pf}/device/sriov_numvfs; echo 3 >/sys/class/net/${pf}/device/sriov_numvfs`,
);
for (const name of readdirSync(`/sys/class/net/${pf}/device`).filter((one) =>
  one.startsWith("virtfn"),
)) {
  vfs.set(Number(name.slice(6)), basename(readlinkSync(`/sys/class/net/${pf}/device/${name}`)));
}
// Another file may have run on the machine before.
sh(`ip address replace 10.5.0.100/24 dev ${other}`);
await carrier();

/** Waits until the physical function has a carrier. */
export async function carrier(): Promise<void> {
  await eventually(
    "the carrier",
    () => readFileSync(`/sys/class/net/${pf}/carrier`, "utf8").trim() === "1",
  );
}

/** PCI address of a virtual function. */
export function address(vf: number): string {
  const found = vfs.get(vf);
  assert(found);
  return found;
}

/** The name of a virtual function's interface, while it is on the machine. */
export function netdev(vf: number): string {
  return readdirSync(`/sys/bus/pci/devices/${address(vf)}/net`)[0] ?? "";
}

interface Shape {
  readonly config?: object;
  readonly runtimeConfig?: JsonObject;
  readonly containerId?: string;
}

const live: Attached[] = [];
/** A VF that is lent to a pod; what a test leaves goes at its end. */
export function attachment(pod: Place, vf: number, shape: Shape = {}): Attached {
  const { config, runtimeConfig, containerId } = shape;
  const attached = new Attached(sriov, {
    pod,
    containerId: containerId ?? pod.name,
    config: { type: "sriov", ...config },
    runtimeConfig: { deviceID: address(vf), ...runtimeConfig },
  });
  live.push(attached);
  return attached;
}
after(async () => {
  for (const attached of live) await attached.del().catch(() => undefined);
});

/** All that DEL must bring back: the PF's view of the VF, and the VF's interface. */
export function snapshot(vf: number): object {
  const [ofPf] = JSON.parse(sh(`ip -j -d link show ${pf}`)) as { vfinfo_list: { vf: number }[] }[];
  const name = netdev(vf);
  const [own] = JSON.parse(sh(`ip -j -d link show ${name}`)) as JsonObject[];
  const pick = [
    "ifname",
    "ifindex",
    "address",
    "mtu",
    "txqlen",
    "promiscuity",
    "group",
    "ifalias",
    "altnames",
  ];
  return {
    vf: ofPf?.vfinfo_list.find((one) => one.vf === vf),
    link: Object.fromEntries(pick.map((key) => [key, own?.[key]])),
    up: (own?.["flags"] as string[] | undefined)?.includes("UP"),
    addresses: sh(`ip -o address show dev ${name}`),
    driver: basename(readlinkSync(`/sys/bus/pci/devices/${address(vf)}/driver`)),
  };
}

/** Without what changes by itself. */
export function withoutTimes(state: object): object {
  return JSON.parse(
    JSON.stringify(state)
      .replaceAll(/"operstate":"\w+",?/g, "")
      .replaceAll(/"(LOWER_UP|NO-CARRIER)",?/g, ""),
  );
}
