import { z } from "zod";
import { absolute, nadRuleKeys, namespace } from "../../lib/api/nad-rules-keys.ts";
import { objectNameFault } from "../../lib/api/names.ts";
import { logLevels } from "../../lib/base/log.ts";
import { resultScopes } from "./merge.ts";

/** What happens with a pod whose selection is invalid: its ADD fails, or it gets the default network only (NPWG's letter). */
export const selectionPolicies = ["fail", "ignore"] as const;

/** Where metrics and health are served. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

const socketPath = absolute.refine(
  (path) => Buffer.byteLength(path) <= 107,
  "must have at most 107 bytes, a unix socket's limit",
);

/** Directories as a list, or separated by ":" as in CNI_PATH. */
const directories = z.preprocess(
  (value) => (typeof value === "string" ? value.split(":") : value),
  z.array(absolute, 'must be a list of directories, or directories with ":" between them').min(1),
);

/** `127.0.0.1:9100`, `[::1]:9100`, `:9100`, or `off`. */
const listenAddress = z
  .string('must be ADDRESS:PORT or "off"')
  .transform((text, context): ListenAddress | undefined => {
    if (text === "off") return undefined;
    const { host, port } =
      /^(?<host>\[[0-9a-fA-F:.]+\]|[^:[\]\s]*):(?<port>\d{1,5})$/.exec(text)?.groups ?? {};
    if (host !== undefined && Number(port) <= 65_535) {
      return { host: host.replace(/^\[|\]$/g, "") || "::", port: Number(port) };
    }
    const message = `${JSON.stringify(text)} must be ADDRESS:PORT, as in "127.0.0.1:9100", or "off"`;
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  });

const seconds = (least: number, most: number) => {
  const message = `must be ${least} to ${most} seconds`;
  return z.number(message).min(least, message).max(most, message);
};
const flag = z.boolean("must be true or false");
const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, `must be one of ${values.join(", ")}`);

/** As a flag it is a text. */
const installMode = z.preprocess(
  (value) => (value === "true" ? true : value === "false" ? false : value),
  z.union([z.boolean(), z.literal("remove")], "must be true, false or remove"),
);

/** Every key of the daemon's configuration; each flag of podnetd is one of them, in camelCase. */
export const configSchema = z.strictObject(
  {
    /** Directory of PodNetwork and NetworkAttachmentDefinition manifests. */
    networksDir: absolute.default("/etc/podnet/networks.d"),
    socket: socketPath.default("/run/podnet/podnetd.sock"),
    stateDir: absolute.default("/var/lib/podnet"),
    /** Where delegate executables are looked for after the request's own CNI_PATH. */
    cniBinDir: directories.default(["/opt/cni/bin"]),
    /** The node's own CNI configurations, for the provider podnet.dev/conflist and NADs without a configuration. */
    cniConfDir: absolute.default("/etc/cni/net.d"),
    /** What a Multus that podnet replaces remembers of its sandboxes. */
    multusCacheDir: absolute.default("/var/lib/cni/multus"),
    /** What runtimes remember of attachments (libcni's cache directory). */
    cniCacheDir: absolute.default("/var/lib/cni"),
    /** Keeps the stub and podnet's own network configuration in place on this node; remove: takes them away. */
    install: installMode.default(false),
    /** File name of podnet's own network configuration: runtimes take the first. */
    conflistName: z
      .string("must be a string")
      .regex(/^[A-Za-z0-9][\w.-]*\.conflist$/, 'must be a file name that ends with ".conflist"')
      .default("00-podnet.conflist"),
    /** The node's own default network where there is no PodNetwork "default": auto, none, a file's name, or a network's. */
    defaultConflist: z.string("must be a string").min(1, "must not be empty").optional(),
    /** The mount namespace that plugin executables run in; none: the daemon's own. */
    delegateMountNamespace: absolute.optional(),
    /** Where /proc/sys and /sys/fs/cgroup of the node can be written: elsewhere when the daemon runs in a container. */
    sysctlDir: absolute.default("/proc/sys"),
    cgroupDir: absolute.default("/sys/fs/cgroup"),
    metrics: listenAddress.optional(),
    logLevel: oneOf(logLevels).default("info"),
    /** Program that starts delegates in the node's mount namespace and in a cgroup of their own; none: podnetd starts them itself. */
    delegateHelper: absolute.optional(),
    /** Seconds that one CNI call may take. */
    operationTimeout: seconds(1, 3600).default(120),
    /** Seconds that undoing a failed ADD may take; then it is retried in the background. */
    undoTimeout: seconds(1, 3600).default(60),
    /** The cluster's API: path of a kubeconfig file, or in-cluster for a pod's own service account; none: no cluster, manifests only. */
    kubeconfig: z
      .union([z.literal("in-cluster"), absolute], 'must be a path, or "in-cluster"')
      .optional(),
    /** This node's name in the cluster; else the environment variable NODE_NAME. Needed with kubeconfig. */
    nodeName: z
      .string("must be a string")
      .superRefine((value, context) => {
        const message = objectNameFault(value);
        if (message !== undefined) context.addIssue({ code: "custom", message });
      })
      .optional(),
    /** The kubelet's pod-resources API: which devices a pod was given. */
    podResourcesSocket: socketPath.default("/var/lib/kubelet/pod-resources/kubelet.sock"),
    /** Folder of device information files: those of device plugins in dp, those of attachments in cni. */
    deviceInfoDir: absolute.default("/run/k8s.cni.cncf.io/devinfo"),
    namespaceIsolation: flag.default(false),
    /** Namespaces whose NADs every pod may use where namespaceIsolation is on. */
    globalNamespaces: z.array(namespace, "must be a list of namespaces").default([]),
    /** What NADs of the API may have, except in trustedNadNamespaces; patterns with "*". */
    ...nadRuleKeys,
    selectionPolicy: oneOf(selectionPolicies).default("fail"),
    resultScope: oneOf(resultScopes).default("auto"),
    /** A pod needs the PodNetwork "default" to exist, whatever it selects. */
    requireDefaultPodNetwork: flag.default(false),
  },
  "must be an object of configuration keys",
);

export type DaemonConfig = z.output<typeof configSchema>;
export const configKeys: readonly string[] = Object.keys(configSchema.shape);
