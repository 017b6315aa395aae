import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Command, Option } from "commander";
import { z } from "zod";
import { loadConfig } from "../../daemon/node/config.ts";
import type { Examination } from "../../daemon/node/doctor/doctor.ts";
import {
  confDirFindings,
  diskFindings,
  socketFindings,
  stubFindings,
  versionFindings,
} from "../../daemon/node/doctor/files.ts";
import { error, type Finding, warn } from "../../daemon/node/doctor/finding.ts";
import { decode } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { podnetVersion } from "../../lib/base/version.ts";
import { withClient } from "./session.ts";
import { printable } from "./table.ts";

const finding = z.looseObject({
  level: z.enum(["ok", "warn", "error"]),
  check: z.string(),
  text: z.string(),
  todo: z.string().optional(),
});

const examination = z.looseObject({
  version: z.string(),
  places: z.looseObject({
    socket: z.string(),
    stateDir: z.string(),
    cniBinDir: z.array(z.string()),
    cniConfDir: z.string(),
    networksDir: z.string(),
  }),
  findings: z.array(finding),
});

interface DoctorOptions {
  readonly output: string;
  readonly config?: string;
  readonly stateDir?: string;
  readonly cniConfDir?: string;
  readonly cniBinDir?: string;
  readonly networksDir?: string;
}

/** The doctor found errors: the report is on stdout, and the exit status says so. */
export class FindingsError extends Error {
  override readonly name = "FindingsError";
}

/** `podnetctl doctor`: what is wrong with this node. */
export function addDoctorCommand(program: Command): void {
  program
    .command("doctor")
    .description("examine this node and say what is wrong and what to do; changes nothing")
    .option("--config <file>", "podnetd's configuration file, for when it does not run")
    .option("--state-dir <dir>", "the daemon's records (default: as podnetd says)")
    .option("--networks-dir <dir>", "PodNetwork manifests, for when podnetd does not run")
    .option("--cni-conf-dir <dir>", "network configurations (default: as podnetd says)")
    .option("--cni-bin-dir <dirs>", "plugin executables (default: as podnetd says)")
    .addOption(
      new Option("-o, --output <form>", "how to print it")
        .choices(["lines", "json"])
        .default("lines"),
    )
    .action(async (options: DoctorOptions, command: Command) => {
      const findings = await examineNode(command, options);
      console.log(
        options.output === "json"
          ? JSON.stringify(findings, null, 2)
          : findings.flatMap(lines).join("\n"),
      );
      const errors = findings.filter(({ level }) => level === "error").length;
      if (errors > 0) throw new FindingsError(`${errors} error${errors === 1 ? "" : "s"} found`);
    });
}

async function examineNode(command: Command, options: DoctorOptions): Promise<Finding[]> {
  const { socket } = command.optsWithGlobals<{ socket: string }>();
  const { report, daemon } = await examined(command, options, socket);
  const { places } = report;
  const confDir = options.cniConfDir ?? places.cniConfDir;
  const binDirs = options.cniBinDir?.split(":") ?? places.cniBinDir;
  return [
    ...socketFindings(socket),
    ...daemon,
    ...stubFindings(binDirs, ownStub()),
    ...(await confDirFindings(confDir, socket)),
    ...diskFindings(options.stateDir ?? places.stateDir),
    ...report.findings,
  ];
}

/** The daemon's own report, else what can be found without it. */
async function examined(
  command: Command,
  options: DoctorOptions,
  socket: string,
): Promise<{ readonly report: Examination; readonly daemon: Finding[] }> {
  try {
    const text = await withClient(command, "examining", (client) =>
      client.send({ method: "GET", path: "/v1/doctor" }),
    );
    const { version, places, findings } = decode(
      examination,
      JSON.parse(text),
      "answer of podnetd",
    );
    const report = { version, places, findings: findings.map(asFinding) };
    return { report, daemon: versionFindings(version, podnetVersion) };
  } catch (cause) {
    const daemon = error("daemon", errorText(cause), "start podnetd, and see its log");
    const without = await offline(options, socket);
    return { report: without.report, daemon: [daemon, ...without.notes] };
  }
}

function asFinding({ level, check, text, todo }: z.infer<typeof finding>): Finding {
  return { level, check, text, ...(todo === undefined ? {} : { todo }) };
}

/** Loaded only here: netlink and the records are the daemon's. */
async function offline(
  { config: file, stateDir, networksDir, cniConfDir, cniBinDir }: DoctorOptions,
  socket: string,
): Promise<{ readonly report: Examination; readonly notes: Finding[] }> {
  const flags = { socket, stateDir, networksDir, cniConfDir, cniBinDir };
  const config = loadConfig(flags, file);
  const notes =
    config.kubeconfig === undefined
      ? []
      : [warn("api", "not asked: podnetd asks it", "start podnetd")];
  try {
    const { examineOffline } = await import("../../daemon/node/doctor/offline.ts");
    return { report: await examineOffline(config), notes };
  } catch (cause) {
    const places = config;
    const todo = "run podnetctl as root, on the node";
    const failed = error("records", `can't be examined: ${errorText(cause)}`, todo);
    return { report: { version: podnetVersion, places, findings: [failed] }, notes };
  }
}

/** The stub that was built and installed with this podnetctl. */
function ownStub(): string | undefined {
  const path = join(import.meta.dirname, "..", "bin", "podnet");
  return existsSync(path) ? path : undefined;
}

function lines({ level, check, text, todo }: Finding): string[] {
  const end = todo === undefined ? "" : `: ${todo}`;
  return [printable(`${level.padEnd(5)} ${check.padEnd(11)} ${text}${end}`)];
}
