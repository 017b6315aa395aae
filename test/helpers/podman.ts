import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { join } from "node:path";
import type { Lab } from "./lab.ts";
import { type MountedNode, removeCgroup } from "./mounts.ts";
import { part } from "./parts.ts";

const image = "localhost/box:test";

/** podman with its CNI backend, conmon and runc, as Debian 12 has them, in a node of its own. */
export class Podman {
  readonly node: MountedNode;
  readonly #folder: string;

  /** The node's CNI configuration must be in its /etc/cni/net.d before a container is run. */
  constructor(lab: Lab, node: MountedNode) {
    this.node = node;
    this.#folder = lab.folder();
    this.#configure();
    this.run("load", "--quiet", "--input", part("image", image, "/bin/sleep", "86400"));
  }

  get image(): string {
    return image;
  }

  /** Writes a file inside the node. */
  write(path: string, content: string): void {
    this.node.run(
      "sh",
      "-c",
      'mkdir -p "$(dirname "$1")" && printf %s "$2" >"$1"',
      "sh",
      path,
      content,
    );
  }

  /** Runs podman; throws with what it printed when it fails. */
  run(...args: string[]): string {
    const done = this.try(...args);
    if (done.status !== 0)
      throw new Error(`podman ${args.join(" ")}: exit ${done.status}: ${done.stderr}`);
    return done.stdout;
  }

  /** Runs podman, whatever comes of it. */
  try(...args: string[]): SpawnSyncReturns<string> {
    const [program = "", ...rest] = this.node.wrap([
      join(part("podman"), "usr/bin/podman"),
      ...args,
    ]);
    return spawnSync(program, rest, { encoding: "utf8", timeout: 60_000 });
  }

  /** Starts a container of the busybox image, which sleeps; gives its id. */
  start(name: string, ...options: string[]): string {
    const cgroup = ["--cgroup-parent", `/${this.node.name}`];
    return this.run("run", "--detach", "--name", name, ...cgroup, ...options, image).trim();
  }

  /** Runs a command in a container. */
  exec(container: string, ...command: string[]): string {
    return this.run("exec", container, ...command);
  }

  #configure(): void {
    const libraries = join(part("podman"), "{usr/,}lib/*-linux-gnu");
    const script = [
      // What podman leaves there, namespaces of containers among it, goes with the node.
      "for dir in /run/netns /run/runc /run/lock /var/cache/ldconfig; do mkdir -p $dir; mount -t tmpfs tmpfs $dir; done",
      // conmon starts podman again to clean up, without this process' environment: the node's linker must find the libraries by itself.
      `printf '%s\\n' ${libraries} >/etc/ld.so.conf.d/podman.conf`,
      "ldconfig -X",
    ];
    this.node.run("bash", "-ec", script.join("\n"));
    this.write("/etc/containers/containers.conf", containersConf(this.#folder));
    this.write("/etc/containers/storage.conf", storageConf(this.#folder));
    this.write("/etc/containers/policy.json", '{"default":[{"type":"insecureAcceptAnything"}]}');
  }

  [Symbol.dispose](): void {
    this.try("rm", "--all", "--force", "--time", "0");
    removeCgroup(this.node.name);
  }
}

function containersConf(folder: string): string {
  return `[containers]
# Without a list podman asks for more than a machine without CAP_SYS_RESOURCE may set.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
cgroupns = "host"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
# Locks in shared memory would be the whole machine's.
lock_type = "file"
events_logger = "file"
conmon_path = ["${part("podman")}/usr/bin/conmon"]
tmp_dir = "${folder}/tmp"
static_dir = "${folder}/libpod"
volume_path = "${folder}/volumes"
[engine.runtimes]
runc = ["${part("containerd", "bookworm")}/usr/sbin/runc"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/etc/cni/net.d"
default_network = "podnet"
`;
}

function storageConf(folder: string): string {
  return `[storage]
driver = "vfs"
graphroot = "${folder}/storage"
runroot = "${folder}/run"
`;
}
