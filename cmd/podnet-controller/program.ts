import { CommanderError } from "commander";
import type { ControllerConfig } from "../../daemon/controller/config.ts";
import { startController } from "../../daemon/controller/controller.ts";
import { errorText } from "../../lib/base/errors.ts";
import { openLog } from "../../lib/base/log.ts";
import { readCommandLine } from "./command-line.ts";

/** Runs the controller until a signal ends it, and resolves with the exit status: 0, 1 (could not start), 2 (command line). */
export async function run(argv: readonly string[]): Promise<number> {
  let config: ControllerConfig;
  try {
    config = readCommandLine(argv);
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    console.error(`podnet-controller: ${errorText(error)}`);
    return 2;
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
