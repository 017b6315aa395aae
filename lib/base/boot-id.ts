import { readFileSync } from "node:fs";

/** The id that the kernel drew at this boot (Documentation/admin-guide/sysctl/kernel.rst, random/boot_id). */
export function readBootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}
