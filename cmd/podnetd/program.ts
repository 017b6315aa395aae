import { existsSync } from "node:fs";
import { join } from "node:path";
import { Command, CommanderError } from "commander";
import { type ConfigFlags, type DaemonConfig, loadConfig } from "../../daemon/node/config.ts";
import { startDaemon } from "../../daemon/node/daemon.ts";
import { debugSwitch } from "../../daemon/node/log-level.ts";
import { errorText } from "../../lib/base/errors.ts";
import { openLog } from "../../lib/base/log.ts";
import { podnetVersion } from "../../lib/base/version.ts";

const help = `
Every flag is also a key of the configuration file, in camelCase (networksDir: /etc/podnet/networks.d); the file has more keys.
podnetd stays in the foreground, logs JSON lines to stderr, says "ready" when it serves, and ends on SIGTERM.
SIGUSR2 switches the log level to debug and back; podnetctl log-level sets any.`;

function buildCommand(): Command {
  return new Command("podnetd")
    .description("Attaches several networks to the pods of this node, for the podnet CNI plugin.")
    .option("--config <file>", "configuration file, YAML or JSON")
    .option("--networks-dir <dir>", "PodNetwork manifests")
    .option("--socket <path>", "unix socket that the podnet executable calls")
    .option("--state-dir <dir>", "where the record of attachments is kept")
    .option("--cni-bin-dir <dirs>", "plugin executables, besides the runtime's CNI_PATH")
    .option("--cni-conf-dir <dir>", "the node's network configuration lists")
    .option("--kubeconfig <file>", "the cluster's API: a kubeconfig, or in-cluster")
    .option("--node-name <name>", "this node in the cluster; default: $NODE_NAME")
    .option("--metrics <address|off>", "where to serve /metrics, /healthz, /readyz")
    .option("--install <true|false|remove>", "keep the stub and podnet's configuration in place")
    .option("--log-level <level>", "trace, debug, info, warn, error or silent")
    .option("--delegate-helper <path>", "the podnet executable that starts plugin executables")
    .version(podnetVersion, "--version", "print the version")
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error/, "podnetd")) })
    .showHelpAfterError("(podnetd --help shows what there is)")
    .addHelpText("after", help)
    .exitOverride();
}

/** Runs the daemon until a signal ends it, and resolves with the exit status: 0, 1 (could not start), 2 (command line). */
export async function run(argv: readonly string[]): Promise<number> {
  let config: DaemonConfig;
  try {
    config = readConfiguration(argv);
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    console.error(`podnetd: ${errorText(error)}`);
    return 2;
  }
  return await serve(config);
}

function readConfiguration(argv: readonly string[]): DaemonConfig {
  const { config: file, ...flags } = buildCommand()
    .parse(argv)
    .opts<ConfigFlags & { config?: string }>();
  const helper = flags.delegateHelper ?? siblingStub();
  return loadConfig(
    { ...flags, ...(helper === undefined ? {} : { delegateHelper: helper }) },
    file,
  );
}

/** The stub that was built and installed with this daemon. */
function siblingStub(): string | undefined {
  const path = join(import.meta.dirname, "..", "bin", "podnet");
  return existsSync(path) ? path : undefined;
}

async function serve(config: DaemonConfig): Promise<number> {
  const log = openLog(config.logLevel);
  process.on("SIGUSR2", debugSwitch(log));
  const signalled = new Promise<NodeJS.Signals>((resolve) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => resolve(name));
  });
  process.on("uncaughtException", (error) =>
    log.error({ fault: errorText(error), stack: error.stack }, "uncaught"),
  );
  process.on("unhandledRejection", (error) => log.error({ fault: errorText(error) }, "unhandled"));
  try {
    const daemon = await startDaemon(config, log);
    log.info({ signal: await signalled }, "stopping");
    await daemon.stop();
    log.info("stopped");
    return 0;
  } catch (error) {
    console.error(`podnetd: ${errorText(error)}`);
    return 1;
  }
}
