import { readdirSync, readFileSync } from "node:fs";
import { z } from "zod";
import { decode } from "../../../lib/base/decode.ts";
import { errorCode } from "../../../lib/base/errors.ts";
import { ensureDir, removeFile, replaceFile } from "../../../lib/base/files.ts";
import type { Log } from "../../../lib/base/log.ts";
import { Netns } from "../../../lib/base/netns.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import { claimsOfNode } from "./device-claims.ts";

const schema = z.object({ key: z.string(), name: z.string(), current: z.string() });

/** A device that came back to the node as `current`, because another interface had its name. `key` is that of its claims. */
export type OwedName = Readonly<z.output<typeof schema>>;

/** Below /run: a reboot names every device anew. */
function folder(): string {
  return `/run/podnet/names/${Netns.current().cookie()}`;
}

function pathOf(key: string): string {
  return `${folder()}/${encodeURIComponent(key)}.json`;
}

/** Notes that a device has not got its name back. Safe to repeat; its first name stays the one that it is owed. */
export function oweName(owed: OwedName): void {
  const older = owedNames().find(({ key }) => key === owed.key);
  ensureDir(folder(), 0o700);
  replaceFile(pathOf(owed.key), JSON.stringify({ ...owed, name: older?.name ?? owed.name }));
}

function owedNames(): readonly OwedName[] {
  try {
    return readdirSync(folder())
      .filter((file) => file.endsWith(".json"))
      .map((file) => decode(schema, JSON.parse(readFileSync(`${folder()}/${file}`, "utf8")), file));
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw error;
  }
}

/**
 * Gives devices of the node the names that they are owed, where those are free by now. What somebody renamed meanwhile keeps that name; a device that a
 * pod has is left for later. Safe to call at any time.
 */
export async function giveNames(host: Rtnetlink, log?: Log): Promise<void> {
  for (const owed of owedNames()) {
    const link = await host.getLink({ name: owed.current });
    if (link === undefined) {
      const isLent = claimsOfNode().read(owed.key) !== undefined;
      if (!isLent) removeFile(pathOf(owed.key));
      continue;
    }
    if ((await host.getLink({ name: owed.name })) !== undefined) continue;
    await rename(host, { index: link.index, up: link.up, name: owed.name });
    removeFile(pathOf(owed.key));
    log?.info({ device: owed.key, from: owed.current, to: owed.name }, "device has its name again");
  }
}

/** Since Linux 6.3 an interface can be renamed while it is up; before, and with some drivers, not. */
async function rename(
  host: Rtnetlink,
  link: { readonly index: number; readonly up: boolean; readonly name: string },
): Promise<void> {
  try {
    await host.changeLink(link.index, { name: link.name });
  } catch (error) {
    if (errorCode(error) !== "EBUSY") throw error;
    await host.changeLink(link.index, { up: false });
    try {
      await host.changeLink(link.index, { name: link.name });
    } finally {
      if (link.up) await host.changeLink(link.index, { up: true });
    }
  }
}
