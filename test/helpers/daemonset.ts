import { readFileSync } from "node:fs";
import { parse } from "yaml";

// biome-ignore lint/suspicious/noExplicitAny: manifests and CRI messages have the shape that their schemas give them
type Message = any;

/** The node agent's DaemonSet as it is in conf. */
export function daemonSet(): Message {
  return parse(readFileSync("conf/kustomize/node/daemonset.yaml", "utf8"), { merge: true });
}

/** What a runtime's own rules for containers are; kubelet sends them along. */
const maskedPaths = [
  ...["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"],
  ...["/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"],
];
const readonlyPaths = [
  ...["/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
];

export interface AgentOptions {
  readonly image: string;
  /** Folder that takes the ConfigMap's place. */
  readonly config: string;
  /** Without these capabilities. */
  readonly without?: readonly string[];
}

/** The CRI's ContainerConfig that kubelet makes of the DaemonSet's container. */
export function agentContainer({ image, config, without = [] }: AgentOptions): Message {
  const { spec } = daemonSet().spec.template;
  const [container] = spec.containers;
  const { securityContext, resources } = container;
  const hostPath = (name: string): string => {
    const volume = spec.volumes.find((one: Message) => one.name === name);
    return volume.hostPath?.path ?? config;
  };
  const { add, drop } = securityContext.capabilities;
  return {
    metadata: { name: container.name, attempt: 0 },
    image: { image },
    command: container.command,
    envs: [{ key: "NODE_NAME", value: Buffer.from("node-a") }],
    mounts: container.volumeMounts.map((mount: Message) => ({
      host_path: hostPath(mount.name),
      container_path: mount.mountPath,
      readonly: mount.readOnly === true,
      propagation:
        mount.mountPropagation === "HostToContainer"
          ? "PROPAGATION_HOST_TO_CONTAINER"
          : "PROPAGATION_PRIVATE",
    })),
    linux: {
      resources: { memory_limit_in_bytes: Number.parseInt(resources.limits.memory, 10) << 20 },
      security_context: {
        privileged: securityContext.privileged,
        capabilities: {
          add_capabilities: add.filter((name: string) => !without.includes(name)),
          drop_capabilities: drop,
        },
        namespace_options: { network: "NODE", pid: spec.hostPID ? "NODE" : "CONTAINER" },
        run_as_user: { value: securityContext.runAsUser },
        readonly_rootfs: securityContext.readOnlyRootFilesystem,
        no_new_privs: !securityContext.allowPrivilegeEscalation,
        masked_paths: maskedPaths,
        readonly_paths: readonlyPaths,
        seccomp: { profile_type: securityContext.seccompProfile.type },
        apparmor: { profile_type: "Unconfined" },
      },
    },
  };
}

/** Folders of the node that the DaemonSet mounts. */
export function hostFolders(): readonly string[] {
  return daemonSet()
    .spec.template.spec.volumes.map((volume: Message) => volume.hostPath?.path)
    .filter((path: string | undefined) => path !== undefined);
}
