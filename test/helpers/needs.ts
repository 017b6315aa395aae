import { spawnSync } from "node:child_process";
import { elsewhere } from "./report.ts";

const attempts: Readonly<Record<string, string>> = {
  dummy: "ip link add t0 type dummy",
  vrf: "ip link add t0 type vrf table 10",
  bond: "ip link add t0 type bond",
  vlan: "ip link add b0 type bridge && ip link add link b0 name t0 type vlan id 5",
  macvlan:
    "ip link add b0 type veth peer name b1 && ip link add link b0 name t0 type macvlan mode bridge",
  macvtap:
    "ip link add b0 type veth peer name b1 && ip link add link b0 name t0 type macvtap mode bridge",
  ipvlan:
    "ip link add b0 type veth peer name b1 && ip link add link b0 name t0 type ipvlan mode l2",
  vxlan: "ip link add t0 type vxlan id 5 dstport 4789",
  ifb: "ip link add t0 type ifb",
};
const answers = new Map<string, string | undefined>();

/**
 * For a test's options, `{ skip: needsDriver("vlan") }`: false where this kernel has the driver, else a reason. The runner takes
 * that reason for a skip that loses nothing only because each kernel test file that calls this function runs in the VM as well.
 */
export function needsDriver(...kinds: readonly (keyof typeof attempts & string)[]): string | false {
  for (const kind of kinds) {
    if (!answers.has(kind)) {
      const script = attempts[kind];
      if (script === undefined) throw new Error(`needsDriver: unknown driver "${kind}"`);
      const done = spawnSync("unshare", ["-n", "sh", "-c", script], { stdio: "ignore" });
      answers.set(
        kind,
        done.status === 0 ? undefined : `${elsewhere}this kernel has no ${kind} driver`,
      );
    }
    const reason = answers.get(kind);
    if (reason !== undefined) return reason;
  }
  return false;
}
