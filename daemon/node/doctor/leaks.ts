import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { errorCode } from "../../../lib/base/errors.ts";
import { Netns } from "../../../lib/base/netns.ts";
import { type Conflist, decodeConflist } from "../../../lib/cni/conflist.ts";
import { addressOfFile } from "../../ipam/address-index.ts";
import { claimsOfNode } from "../../plugins/devices/device-claims.ts";
import { hostVethName } from "../../plugins/shared/names.ts";
import type { NodeContext } from "../context.ts";
import { foreignAttachments } from "../multus/cache-inherit.ts";
import { podText } from "../pods.ts";
import type { SandboxRecord } from "../record.ts";
import { knownConflists } from "../resolve.ts";
import type { Store } from "../store.ts";

/** What leaks are looked for with: a daemon's own, or what can be had without one. */
export type LeakParts = Pick<NodeContext, "config" | "networks" | "host" | "bootId"> & {
  readonly store: Pick<Store, "all" | "unreadable">;
};

export const leakKinds = ["sandbox", "address", "link", "device"] as const;

/** Something that podnet keeps, or made, for nobody. */
export interface Leak {
  /** `sandbox`: a record whose namespace is gone; `address`, `link`, `device`: without a record. */
  readonly kind: (typeof leakKinds)[number];
  readonly text: string;
}

/** Milliseconds between two looks: what an operation under way makes or frees is gone from one of them. */
const lookAgain = 300;

/**
 * Finds what is kept for nobody: what is seen in two looks, since calls go on meanwhile. Reads only. What can't be read counts as no leak: others say that
 * it can't be read.
 */
export async function findLeaks(parts: LeakParts): Promise<Leak[]> {
  const first = await look(parts);
  if (first.length === 0) return [];
  await sleep(lookAgain);
  const second = new Set((await look(parts)).map(({ text }) => text));
  return first.filter(({ text }) => second.has(text));
}

async function look(parts: LeakParts): Promise<Leak[]> {
  const records = parts.store.all();
  return [
    ...(await goneSandboxes(parts, records)),
    ...(await leakedAddresses(parts, records)),
    ...(await leakedLinks(parts, records)),
    ...leakedDevices(records),
  ];
}

async function goneSandboxes(
  { bootId }: LeakParts,
  records: readonly SandboxRecord[],
): Promise<Leak[]> {
  const leaks: Leak[] = [];
  for (const record of records) {
    if (record.phase !== "attached") continue;
    // Hundreds of them are looked at: calls must not wait for all.
    await setImmediate();
    if (!isGone(record, bootId)) continue;
    const pod = podText(record.pod);
    const who = `container "${record.containerId}"${pod === undefined ? "" : ` of pod "${pod}"`}`;
    leaks.push({ kind: "sandbox", text: `the network namespace of ${who} is gone without a DEL` });
  }
  return leaks;
}

function isGone(record: SandboxRecord, bootId: string): boolean {
  if (record.bootId !== bootId) return true;
  if (record.netns === undefined) return false;
  try {
    const netns = Netns.open(record.netns);
    try {
      return String(netns.cookie()) !== record.netnsCookie;
    } finally {
      netns.close();
    }
  } catch (error) {
    return ["ENOENT", "ENOTDIR", "ESRCH", "EINVAL"].includes(errorCode(error) ?? "");
  }
}

/** The same that GC would free: addresses of networks that podnet knows, whose owner nobody names. */
async function leakedAddresses(
  parts: LeakParts,
  records: readonly SandboxRecord[],
): Promise<Leak[]> {
  const owners = await knownOwners(parts, records);
  const leaks: Leak[] = [];
  for (const [folder, network] of await addressFolders(parts, records)) {
    const held = (await heldIn(folder)).filter(([, owner]) => !owners.has(owner));
    leaks.push(...held.map(([address, owner]) => addressLeak(network, address, owner)));
  }
  return leaks;
}

function addressLeak(network: string, address: string, owner: string): Leak {
  const [container, ifName] = owner.split("\r\n");
  const where = ifName === undefined ? "" : `, interface "${ifName}"`;
  const who = owner === "" ? "nobody" : `container "${container}"${where}`;
  const text = `address ${address} of network "${network}" is held for ${who}, which podnet has no record of`;
  return { kind: "address", text };
}

/** As host-local writes them, with and without the interface. */
async function knownOwners(
  { config }: LeakParts,
  records: readonly SandboxRecord[],
): Promise<ReadonlySet<string>> {
  const own = records.flatMap(({ containerId, attachments }) =>
    attachments.map(({ ifName }) => ({ containerID: containerId, ifname: ifName })),
  );
  const all = [...own, ...(await foreignAttachments(config))];
  return new Set(
    all.flatMap(({ containerID, ifname }) => [containerID, `${containerID}\r\n${ifname}`]),
  );
}

/** host-local's folders of the networks that are known, with their names. */
async function addressFolders(
  { networks }: LeakParts,
  records: readonly SandboxRecord[],
): Promise<Map<string, string>> {
  const known = await knownConflists(networks).catch(() => []);
  const recorded = records.flatMap(({ attachments }) =>
    attachments.map(({ conflist }) => decodeConflist(conflist)),
  );
  const lists = [...recorded, ...known].filter(({ disableGC }) => !disableGC);
  return new Map(lists.flatMap(foldersOf));
}

function foldersOf({ name, plugins }: Conflist): [folder: string, network: string][] {
  return plugins.flatMap(({ ipam }) => {
    if (ipam?.type !== "host-local") return [];
    const dir = ipam["dataDir"];
    const base = typeof dir === "string" && dir !== "" ? dir : "/var/lib/cni/networks";
    return [[join(base, name), name]];
  });
}

async function heldIn(folder: string): Promise<[address: string, owner: string][]> {
  try {
    const names = (await readdir(folder)).filter((name) => addressOfFile(name) !== undefined);
    const texts = await Promise.all(names.map((name) => ownerIn(join(folder, name))));
    return names.flatMap((name, place) => {
      const owner = texts[place];
      return owner === undefined ? [] : [[name, owner]];
    });
  } catch {
    return [];
  }
}

/** undefined: it was freed meanwhile. */
async function ownerIn(path: string): Promise<string | undefined> {
  return await readFile(path, "utf8").then(
    (text) => text.trim(),
    () => undefined,
  );
}

/** The node's ends of veth pairs whose names podnet gives, and that follow from none of its attachments. */
async function leakedLinks(
  { host }: LeakParts,
  records: readonly SandboxRecord[],
): Promise<Leak[]> {
  const made = new Set(
    records.flatMap(({ containerId, attachments }) =>
      attachments.map(({ ifName }) => hostVethName(containerId, ifName)),
    ),
  );
  const links = await host.links();
  const bridges = new Set(links.filter(({ kind }) => kind === "bridge").map(({ index }) => index));
  return (
    links
      .filter(({ kind, name }) => kind === "veth" && /^veth[0-9a-f]{11}$/.test(name))
      // A bridge's port to its own VLAN gateway stays as long as the bridge: its other end is on the node too.
      .filter(
        ({ name, linkNetnsId, master }) =>
          !made.has(name) &&
          linkNetnsId !== undefined &&
          (master === undefined || bridges.has(master)),
      )
      .map(({ name }) => ({
        kind: "link",
        text: `interface "${name}" was made for an attachment that podnet has no record of`,
      }))
  );
}

function leakedDevices(records: readonly SandboxRecord[]): Leak[] {
  const owners = new Set(
    records.flatMap(({ containerId, attachments }) =>
      attachments.map(({ ifName }) => `${containerId} ${ifName}`),
    ),
  );
  return claimsOfNode()
    .list()
    .filter(({ containerId, ifName }) => !owners.has(`${containerId} ${ifName}`))
    .map(({ device, containerId, network }) => ({
      kind: "device",
      text: `device "${device}" is claimed for container "${containerId}" on network "${network}", which podnet has no record of`,
    }));
}
