import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readBootId } from "../../../lib/base/boot-id.ts";
import { decode } from "../../../lib/base/decode.ts";
import { errorCode } from "../../../lib/base/errors.ts";
import { openLog } from "../../../lib/base/log.ts";
import { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import type { DaemonConfig } from "../config.ts";
import { DirectoryNetworks } from "../networks.ts";
import { findPlugins } from "../plugin-finder.ts";
import { type SandboxRecord, sandboxRecord } from "../record.ts";
import { type Examination, examine } from "./doctor.ts";
import type { LeakParts } from "./leaks.ts";

/** The records of a state directory as they are on disk. Changes nothing, unlike the daemon's own way of opening them. */
export function readRecords(stateDir: string): LeakParts["store"] {
  const dir = join(stateDir, "records");
  const records: SandboxRecord[] = [];
  const unreadable: string[] = [];
  for (const name of namesIn(dir)) {
    const path = join(dir, name);
    if (name.endsWith(".unreadable")) unreadable.push(path);
    if (!name.endsWith(".json")) continue;
    try {
      const line = readFileSync(path, "utf8").split("\n").at(-2);
      // Without a whole line nothing was done yet.
      if (line !== undefined) records.push(decode(sandboxRecord, JSON.parse(line), "record"));
    } catch {
      unreadable.push(path);
    }
  }
  return { all: () => records, unreadable };
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw error;
  }
}

/** As the daemon examines a node, without one: what the cluster knows is not asked. Run it in the node's own network namespace. */
export async function examineOffline(config: DaemonConfig): Promise<Examination> {
  using host = Rtnetlink.open();
  const log = openLog("silent");
  using networks = new DirectoryNetworks(config, log);
  const store = readRecords(config.stateDir);
  const plugins = findPlugins({ helper: undefined, cgroups: undefined, log });
  return await examine({ config, store, host, networks, plugins, bootId: readBootId() });
}
