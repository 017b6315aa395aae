import { Counter, Gauge, type Registry } from "prom-client";
import type { Installer } from "./install.ts";

/** The metrics of a daemon that installs itself; docs/metrics.md describes each. */
export function registerInstallMetrics(
  registry: Registry,
  installer: Pick<Installer, "fault" | "restored">,
): void {
  const registers = [registry];
  new Gauge({
    name: "podnet_installed",
    help: "1 while podnet's stub and network configuration are in place and come first",
    registers,
    collect() {
      this.set(installer.fault === undefined ? 1 : 0);
    },
  });
  new Counter({
    name: "podnet_install_restored_total",
    help: "How often podnet's file was put back because somebody removed, renamed or replaced it",
    labelNames: ["file"],
    registers,
    collect() {
      this.reset();
      const { conflist, stub } = installer.restored;
      this.inc({ file: "conflist" }, conflist);
      this.inc({ file: "stub" }, stub);
    },
  });
}
