import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { type Lab, type Place, runCommand } from "./lab.ts";

/**
 * A node with a mount namespace of its own as well: what programs write below /etc, /opt and /var/lib (CNI configuration, plugins,
 * records) lands in an overlay that goes away with the test, and mounts made inside are not seen outside (those made outside are:
 * the namespaces of later pods).
 */
export class MountedNode implements Place {
  readonly name: string;
  readonly path: string;
  readonly #holder: ChildProcess;

  private constructor(place: Place, holder: ChildProcess) {
    this.name = place.name;
    this.path = place.path;
    this.#holder = holder;
  }

  static make(lab: Lab): MountedNode {
    const place = lab.node();
    const upper = lab.folder();
    // `ip netns exec` would remount /sys and hide the cgroups from runc; nsenter does not.
    const [program = "", ...args] = place.wrap([
      "unshare",
      "--mount",
      "--propagation",
      "slave",
      "sleep",
      "infinity",
    ]);
    const holder = spawn(program, args, { stdio: "ignore" });
    const node = new MountedNode(place, holder);
    const before = readlinkSync("/proc/self/ns/mnt");
    const until = Date.now() + 5_000;
    // unshare execs sleep when the namespace stands.
    while (holderNamespace(holder) === before || command(holder) !== "sleep") {
      if (Date.now() > until) throw new Error("no mount namespace for the test's node within 5 s");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
    }
    const overlay = (path: string) =>
      `mkdir -p '${upper}${path}' '${upper}/work${path}' && ` +
      `mount -t overlay overlay -o 'lowerdir=${path},upperdir=${upper}${path},workdir=${upper}/work${path}' ${path}`;
    const script = [
      `mount -t tmpfs tmpfs '${upper}'`,
      ...["/etc", "/opt", "/var/lib"].map(overlay),
      "mkdir -p /run/containerd && mount -t tmpfs tmpfs /run/containerd",
      "mkdir -p /etc/cni/net.d /opt/cni/bin",
    ];
    runCommand(node.wrap(["sh", "-ec", script.join("\n")]));
    return node;
  }

  wrap(inner: readonly string[]): string[] {
    const mounts = `--mount=/proc/${this.#holder.pid}/ns/mnt`;
    return ["nsenter", `--net=${this.path}`, mounts, `--wd=${process.cwd()}`, "--", ...inner];
  }

  run(program: string, ...args: string[]): string {
    return runCommand(this.wrap([program, ...args]));
  }

  /** Ends every process that runs in the mount namespace: only what the test itself started can. */
  [Symbol.dispose](): void {
    const own = holderNamespace(this.#holder);
    for (const name of readdirSync("/proc")) {
      const pid = Number(name);
      if (!Number.isInteger(pid) || pid === this.#holder.pid) continue;
      if (own !== undefined && namespaceOf(pid) === own) kill(pid);
    }
    this.#holder.kill("SIGKILL");
  }
}

function holderNamespace(holder: ChildProcess): string | undefined {
  return holder.pid === undefined ? undefined : namespaceOf(holder.pid);
}

function namespaceOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`);
  } catch {
    return undefined;
  }
}

function command(holder: ChildProcess): string {
  try {
    return readFileSync(`/proc/${holder.pid}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended by itself.
  }
}

/** Ends all processes of a cgroup (v1 in every hierarchy, or v2) and removes it with what is below it. */
export function removeCgroup(name: string): void {
  for (const root of cgroupRoots()) {
    const folder = join(root, name);
    spawnSync("sh", [
      "-c",
      // A cgroup can be removed a moment after its last process has gone.
      'test -d "$1" || exit 0; for i in 1 2 3 4 5 6 7 8 9 10; do find "$1" -name cgroup.procs -exec cat {} + | xargs -r kill -9; ' +
        'find "$1" -depth -type d -exec rmdir {} + 2>/dev/null; test -d "$1" || exit 0; sleep 0.05; done',
      "sh",
      folder,
    ]);
  }
}

/** Where cgroup hierarchies are mounted. */
export function cgroupRoots(): string[] {
  return readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" "))
    .filter(([, , type]) => type === "cgroup" || type === "cgroup2")
    .map(([, path = ""]) => path);
}
