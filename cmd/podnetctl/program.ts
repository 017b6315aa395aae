import { Command, CommanderError, Option } from "commander";
import { podnetVersion } from "../../lib/base/version.ts";
import { DaemonError } from "./client.ts";
import { addCniCommands } from "./commands-cni.ts";
import { addDoctorCommand } from "./commands-doctor.ts";
import { addExplainCommand } from "./commands-explain.ts";
import { addGcCommand } from "./commands-gc.ts";
import { addLogLevelCommand } from "./commands-log-level.ts";
import { addLsCommand } from "./commands-ls.ts";
import { addResolveCommand } from "./commands-resolve.ts";
import { addUninstallCommand } from "./commands-uninstall.ts";
import { UsageError } from "./session.ts";

const examples = `
Examples:
  podnetctl ls                                     what is attached on this node
  podnetctl ls --pending                           what a DEL has not finished yet, and why
  podnetctl add /run/netns/web --networks blue,red attach two networks to a namespace by hand
  podnetctl del /run/netns/web                     give everything back
  podnetctl resolve -f pod.yaml                    what a pod would get, without doing it
  podnetctl gc                                     free what no live sandbox owns
  podnetctl doctor                                 what is wrong with this node, and what to do
  podnetctl explain web-0 -n team-a                what became of a pod's networks, and why
  podnetctl log-level debug                        more in the log, until the daemon is restarted

Exit status: 0 done, 1 podnet refused or failed (the reason is on stderr) or doctor found an error, 2 the command line is wrong.`;

function buildProgram(): Command {
  const program = new Command("podnetctl")
    .description("Look at and work with the networks that podnet attaches on this node.")
    .addOption(
      new Option("--socket <path>", "podnetd's socket")
        .default("/run/podnet/podnetd.sock")
        .env("PODNET_SOCKET"),
    )
    .option("--timeout <seconds>", "longest wait for an answer", "130")
    .addHelpText("after", examples)
    .version(podnetVersion, "--version", "print the version")
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error/, "podnetctl")) })
    .showHelpAfterError("(podnetctl --help shows what there is)")
    .exitOverride();
  addLsCommand(program);
  addCniCommands(program);
  addGcCommand(program);
  addResolveCommand(program);
  addDoctorCommand(program);
  addExplainCommand(program);
  addLogLevelCommand(program);
  addUninstallCommand(program);
  return program;
}

/** Runs a command line and resolves with the exit status. */
export async function run(argv: readonly string[]): Promise<number> {
  try {
    await buildProgram().parseAsync(argv);
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    report(error);
    return error instanceof UsageError ? 2 : 1;
  }
}

function report(error: unknown): void {
  if (error instanceof DaemonError) {
    console.error(`podnetctl: ${error.message} (code ${error.code})`);
    if (error.details !== undefined) console.error(error.details);
    return;
  }
  console.error(`podnetctl: ${error instanceof Error ? error.message : String(error)}`);
}
