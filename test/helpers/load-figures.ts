import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Memory of a process in bytes, now and at most. */
export function memory(pid: number): { readonly now: number; readonly most: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const kibibytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1]);
  return { now: kibibytes("VmRSS") * 1024, most: kibibytes("VmHWM") * 1024 };
}

/** Names of the programs that were in the daemon's cgroup, looked at until the work has ended. */
export async function membersDuring(folder: string, work: Promise<unknown>): Promise<string[]> {
  const names = new Set<string>();
  let ended = false;
  void work.then(() => {
    ended = true;
  });
  while (!ended) {
    for (const pid of readFileSync(join(folder, "cgroup.procs"), "utf8").split("\n"))
      if (pid !== "") names.add(nameOf(pid));
    await sleep(100);
  }
  return [...names];
}

function nameOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "gone";
  }
}

/** From podnetd's metrics, the upper end of the bucket that holds this share of the ADDs that succeeded, in seconds. */
export function percentile(text: string, share: number): number {
  const line = /^podnet_operation_seconds_bucket\{(.*)\} (\d+)$/gm;
  const buckets = [...text.matchAll(line)]
    .filter(([, labels = ""]) => /verb="ADD"/.test(labels) && /outcome="ok"/.test(labels))
    .map(([, labels = "", count]) => [/le="([^"]*)"/.exec(labels)?.[1], Number(count)] as const)
    .map(([end, count]) => ({
      end: end === "+Inf" ? Number.POSITIVE_INFINITY : Number(end),
      count,
    }));
  const all = buckets.at(-1)?.count ?? 0;
  return buckets.find(({ count }) => count >= all * share)?.end ?? Number.POSITIVE_INFINITY;
}
