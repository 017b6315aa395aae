import { Command, InvalidArgumentError, Option } from "commander";
import {
  type ControllerConfig,
  type ListenAddress,
  readConfinement,
} from "../../daemon/controller/config.ts";
import { namespaceFault } from "../../lib/api/names.ts";
import { type LogLevel, logLevels } from "../../lib/base/log.ts";
import { podnetVersion } from "../../lib/base/version.ts";

const help = `
podnet-controller stays in the foreground, logs JSON lines to stderr, says "ready" when it has read the cluster, and ends on SIGTERM.`;

interface Flags {
  readonly kubeconfig?: string;
  readonly nodeConfig?: string;
  readonly leaderElect: boolean;
  readonly namespace: string;
  readonly leaseDuration: number;
  readonly metrics: ListenAddress | "off";
  readonly webhook: ListenAddress | "off";
  readonly webhookService: string;
  readonly createDefault: boolean;
  readonly ipFamilies: ControllerConfig["ipFamilies"];
  readonly logLevel: LogLevel;
}

/**
 * Reads the command line. Throws a CommanderError when help or the version was asked for or a flag is wrong (it is told by then), an
 * Error of one line for what is wrong otherwise.
 */
export function readCommandLine(argv: readonly string[]): ControllerConfig {
  const { metrics, webhook, nodeConfig, ...flags } = buildCommand().parse(argv).opts<Flags>();
  const fault = namespaceFault(flags.namespace);
  // Of a flag it was told already: this one comes from the environment.
  if (fault !== undefined) throw new Error(`POD_NAMESPACE: ${fault}`);
  return {
    ...flags,
    ...(nodeConfig === undefined ? {} : { confinement: readConfinement(nodeConfig) }),
    ...(metrics === "off" ? {} : { metrics }),
    ...(webhook === "off" ? {} : { webhook }),
  };
}

function buildCommand(): Command {
  const namespace = process.env["POD_NAMESPACE"] || "podnet-system";
  return new Command("podnet-controller")
    .description("Gives PodNetworks and their attachments conditions and protection while in use.")
    .option("--kubeconfig <file>", "the cluster's API; default: as a pod has it", path)
    .option("--node-config <file>", "podnetd's configuration: what it permits in NADs", path)
    .option("--leader-elect", "one of several replicas does the work", true)
    .option("--no-leader-elect", "this is the only replica")
    .option("--namespace <name>", "of the controller's lease, service and secret", label, namespace)
    .option("--lease-duration <seconds>", "after which another replica takes over", seconds, 15)
    .addOption(
      new Option("--metrics <address|off>", "/metrics, /healthz, /readyz")
        .argParser(address)
        .default({ host: "127.0.0.1", port: 9478 }, "127.0.0.1:9478"),
    )
    .option("--webhook <address|off>", "where to serve admission webhooks", address, "off")
    .option("--webhook-service <name>", "the webhooks' service", label, "podnet-controller")
    .option("--create-default", 'make the PodNetwork "default" where there is none', true)
    .option("--no-create-default", "the operator makes it")
    .option(
      "--ip-families <list>",
      "of the default network: auto, none, ipv4, ipv6 or ipv4,ipv6",
      families,
      "auto",
    )
    .addOption(new Option("--log-level <level>").choices(logLevels).default("info"))
    .version(podnetVersion, "--version", "print the version")
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error/, "podnet-controller")),
    })
    .showHelpAfterError("(podnet-controller --help shows what there is)")
    .addHelpText("after", help)
    .exitOverride();
}

function path(text: string): string {
  if (text.trim() === "" || text.includes("\0")) throw new InvalidArgumentError("must be a path");
  return text;
}

/** The name of a namespace or of a service. */
function label(text: string): string {
  const fault = namespaceFault(text);
  if (fault !== undefined) throw new InvalidArgumentError(fault);
  return text;
}

function address(text: string): ListenAddress | "off" {
  if (text === "off") return "off";
  const { host, port } =
    /^(?<host>\[[0-9a-fA-F:.]+\]|[^:[\]\s]*):(?<port>\d{1,5})$/.exec(text)?.groups ?? {};
  if (host === undefined || Number(port) > 65_535) {
    throw new InvalidArgumentError('must be ADDRESS:PORT, as in "127.0.0.1:9478", or "off"');
  }
  return { host: host.replace(/^\[|\]$/g, "") || "::", port: Number(port) };
}

function seconds(text: string): number {
  const value = /^\d{1,3}(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= 1 && value <= 600)) throw new InvalidArgumentError("must be 1 to 600 seconds");
  return value;
}

function families(text: string): ControllerConfig["ipFamilies"] {
  if (text === "auto") return "auto";
  if (text === "none") return [];
  const found = text.split(",").map((word) => {
    const name = word.trim().toLowerCase();
    if (name === "ipv4") return 4;
    if (name === "ipv6") return 6;
    throw new InvalidArgumentError("must be auto, none, ipv4, ipv6 or ipv4,ipv6");
  });
  if (new Set(found).size < found.length) {
    throw new InvalidArgumentError("must have each family once");
  }
  return found;
}
