import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import type { ControllerConfig, ListenAddress } from "../../daemon/controller/config.ts";
import { startController } from "../../daemon/controller/controller.ts";
import { errorText } from "../../lib/base/errors.ts";
import { type LogLevel, logLevels, openLog } from "../../lib/base/log.ts";

const help = `
podnet-controller stays in the foreground, logs JSON lines to stderr, says "ready" when it serves, and ends on SIGTERM.`;

interface Flags {
  readonly kubeconfig?: string;
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

function buildCommand(): Command {
  const namespace = process.env["POD_NAMESPACE"] || "podnet-system";
  return new Command("podnet-controller")
    .description("Gives PodNetworks and their attachments conditions and protection while in use.")
    .option("--kubeconfig <file>", "the cluster's API; default: as a pod has it")
    .option("--leader-elect", "one of several replicas does the work", true)
    .option("--no-leader-elect", "this is the only replica")
    .option("--namespace <name>", "of the controller's lease, service and secret", namespace)
    .option("--lease-duration <seconds>", "after which another replica takes over", seconds, 15)
    .addOption(
      new Option("--metrics <address|off>", "/metrics, /healthz, /readyz")
        .argParser(address)
        .default({ host: "127.0.0.1", port: 9478 }, "127.0.0.1:9478"),
    )
    .option("--webhook <address|off>", "where to serve admission webhooks", address, "off")
    .option("--webhook-service <name>", "the webhooks' service", "podnet-controller")
    .option("--create-default", 'make the PodNetwork "default" where there is none', true)
    .option("--no-create-default", "the operator makes it")
    .option(
      "--ip-families <list>",
      "of the default network: auto, none, ipv4, ipv6 or ipv4,ipv6",
      families,
      "auto",
    )
    .addOption(new Option("--log-level <level>").choices(logLevels).default("info"))
    .addHelpText("after", help)
    .exitOverride();
}

function address(text: string): ListenAddress | "off" {
  if (text === "off") return "off";
  const [, host = "", port = ""] = /^(.*):(\d{1,5})$/.exec(text) ?? [];
  if (port === "" || Number(port) > 65_535) {
    throw new InvalidArgumentError('must be HOST:PORT, :PORT or "off"');
  }
  return { host: host.replace(/^\[(.*)\]$/, "$1") || "::", port: Number(port) };
}

function seconds(text: string): number {
  const value = Number(text);
  if (!(value >= 1 && value <= 600)) throw new InvalidArgumentError("must be 1 to 600");
  return value;
}

function families(text: string): ControllerConfig["ipFamilies"] {
  if (text === "auto") return "auto";
  if (text === "none") return [];
  return text.split(",").map((word) => {
    const name = word.trim().toLowerCase();
    if (name === "ipv4") return 4;
    if (name === "ipv6") return 6;
    throw new InvalidArgumentError("must be auto, none, ipv4, ipv6 or ipv4,ipv6");
  });
}

function readConfig(argv: readonly string[]): ControllerConfig {
  const { metrics, webhook, ...flags } = buildCommand().parse(argv).opts<Flags>();
  return {
    ...flags,
    ...(metrics === "off" ? {} : { metrics }),
    ...(webhook === "off" ? {} : { webhook }),
  };
}

/** Runs the controller until a signal ends it, and resolves with the exit status: 0, 1 (could not start), 2 (command line). */
export async function run(argv: readonly string[]): Promise<number> {
  let config: ControllerConfig;
  try {
    config = readConfig(argv);
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    throw error;
  }
  return await serve(config);
}

async function serve(config: ControllerConfig): Promise<number> {
  const log = openLog(config.logLevel);
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => resolve(name));
  });
  process.on("uncaughtException", (error) =>
    log.error({ fault: errorText(error), stack: error.stack }, "uncaught"),
  );
  process.on("unhandledRejection", (error) => log.error({ fault: errorText(error) }, "unhandled"));
  // Pauses keep nobody alive: without this, the process would end when every connection is closed at one moment.
  const alive = setInterval(() => undefined, 60_000);
  try {
    const controller = await startController(config, log);
    log.info({ signal: await signalled }, "stopping");
    await controller.stop();
    log.info("stopped");
    return 0;
  } catch (error) {
    console.error(`podnet-controller: ${errorText(error)}`);
    return 1;
  } finally {
    clearInterval(alive);
  }
}
