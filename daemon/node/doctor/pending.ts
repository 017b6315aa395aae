import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { tornFolder } from "../multus/cache-end.ts";
import { podText } from "../pods.ts";
import type { SandboxRecord } from "../record.ts";
import type { Store } from "../store.ts";
import { duration, error, type Finding, ok, orFine, warn } from "./finding.ts";

/** Seconds after which a DEL that is not finished is stuck. */
const stuckAfter = 600;

/** Seconds since the oldest DEL that is not finished began; 0: there is none. */
export function oldestPending(records: readonly SandboxRecord[], now = Date.now()): number {
  const pending = records.filter(({ phase }) => phase === "deleting");
  return Math.max(0, ...pending.map((record) => age(record, now)));
}

function age({ deleting, created }: SandboxRecord, now: number): number {
  return Math.max(0, now - Date.parse(deleting ?? created)) / 1000;
}

/** DELs that are not finished, with their reason. */
export function pendingFindings(records: readonly SandboxRecord[], now = Date.now()): Finding[] {
  const pending = records.filter(({ phase }) => phase === "deleting");
  const findings = pending.map((record) => {
    const { containerId, fault = "it is under way" } = record;
    const seconds = age(record, now);
    const pod = podText(record.pod);
    const who = pod === undefined ? `container "${containerId}"` : `pod "${pod}" (${containerId})`;
    const text = `${who} is not detached for ${duration(seconds)}: ${fault}`;
    const todo = "podnetd tries again by itself; remove the reason";
    return seconds > stuckAfter ? error("pending", text, todo) : warn("pending", text, todo);
  });
  return orFine(findings, ok("pending", "every DEL is finished"));
}

/** Records, and files of Multus, that nobody could read. */
export function unreadableFindings(
  store: Pick<Store, "all" | "unreadable">,
  stateDir: string,
): Finding[] {
  const records = store.unreadable.map((path) =>
    error(
      "records",
      `"${path}" can't be read: what it stands for is not given back, and GC frees nothing meanwhile`,
      "repair it and rename it to .json, or remove it",
    ),
  );
  const folder = join(stateDir, tornFolder);
  const torn = (existsSync(folder) ? readdirSync(folder) : []).map((name) =>
    warn(
      "multus",
      `Multus' file of container "${name}" was damaged: what it named beyond what could be read may be left`,
      `look at "${join(folder, name)}", free what it names, and remove it`,
    ),
  );
  const number = store.all().length;
  const fine = ok("records", `${number} record${number === 1 ? "" : "s"}, all readable`);
  return [...orFine(records, fine), ...torn];
}
