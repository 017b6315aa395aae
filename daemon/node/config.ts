import { readFileSync } from "node:fs";
import { unknownKeyText } from "../../lib/api/nearest.ts";
import { formatPath } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { isJsonObject } from "../../lib/base/json.ts";
import { configKeys, configSchema, type DaemonConfig } from "./config-schema.ts";
import { parseYaml, type YamlDocument } from "./yaml-text.ts";

export type { DaemonConfig } from "./config-schema.ts";

/** One thing that is wrong with the configuration, and where it was written. */
export interface ConfigFault {
  /** Line of the file, from 1; undefined for a flag. */
  readonly line?: number;
  /** The key, or the flag as people type it; empty for the whole file. */
  readonly field: string;
  readonly message: string;
}

/** The daemon's configuration is wrong. Carries every fault. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly faults: readonly ConfigFault[];

  constructor(source: string, faults: readonly ConfigFault[], cause?: unknown) {
    super(`read ${source}: ${faults.map(formatConfigFault).join("; ")}`, { cause });
    this.faults = faults;
  }
}

/** `line 3: resultScope: must be one of auto, all, default` */
export function formatConfigFault({ line, field, message }: ConfigFault): string {
  return [line === undefined ? "" : `line ${line}`, field, message]
    .filter((part) => part !== "")
    .join(": ");
}

/** So many faults are reported: a file with more is not a configuration of podnetd. */
const mostFaults = 50;

/** Values of command line flags by their key; undefined: not given. */
export type ConfigFlags = { readonly [K in keyof DaemonConfig]?: string | boolean | undefined };

/**
 * Reads the configuration: flags over the file over defaults. `path`: a YAML or JSON file, undefined when there is none.
 * Throws a ConfigError with every fault, by line of the file or by flag.
 */
export function loadConfig(flags: ConfigFlags, path?: string): DaemonConfig {
  if (path === undefined) return decodeConfig(flags);
  return decodeConfig(flags, { name: `configuration "${path}"`, text: readText(path) });
}

/** As `loadConfig`, on the file's text. */
export function decodeConfig(
  flags: ConfigFlags,
  file: { readonly name: string; readonly text: string } = { name: "configuration", text: "" },
): DaemonConfig {
  const document = fileDocument(file);
  const values = document?.value ?? {};
  if (!isJsonObject(values)) {
    throw new ConfigError(file.name, [{ line: 1, field: "", message: "must be keys and values" }]);
  }
  const given = Object.fromEntries(Object.entries(flags).filter(([, item]) => item !== undefined));
  const filled = Object.fromEntries(Object.entries(values).filter(([, item]) => item !== null));
  const outcome = configSchema.safeParse({ ...filled, ...given });
  if (outcome.success) return outcome.data;
  const faults = outcome.error.issues.slice(0, mostFaults).flatMap((issue): ConfigFault[] => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.slice(0, mostFaults).map((key) => ({
        ...lineAt(document, [key]),
        field: "",
        message: unknownKeyText(key, configKeys),
      }));
    }
    const [key] = issue.path;
    if (typeof key === "string" && Object.hasOwn(given, key)) {
      return [{ field: flagName(key), message: issue.message }];
    }
    const field = formatPath(issue.path);
    return [{ ...lineAt(document, issue.path), field, message: issue.message }];
  });
  throw new ConfigError(
    file.name,
    faults.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0)),
  );
}

/** `networksDir` -> `--networks-dir` */
export function flagName(key: string): string {
  return `--${key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function lineAt(document: YamlDocument | undefined, path: readonly PropertyKey[]) {
  return document === undefined ? {} : { line: document.lineOf(path) };
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw unreadable(path, error);
  }
}

function unreadable(path: string, cause: unknown): ConfigError {
  return new ConfigError(
    `configuration "${path}"`,
    [{ field: "", message: errorText(cause) }],
    cause,
  );
}

/** The file's one document; undefined for an empty file. */
function fileDocument(file: {
  readonly name: string;
  readonly text: string;
}): YamlDocument | undefined {
  const documents = parseYaml(file.text);
  const faults = documents.flatMap((item) => ("message" in item ? [{ ...item, field: "" }] : []));
  if (faults.length > 0) throw new ConfigError(file.name, faults);
  if (documents.length > 1) {
    throw new ConfigError(file.name, [{ field: "", message: "must be one YAML document" }]);
  }
  const [document] = documents;
  return document === undefined || "message" in document ? undefined : document;
}
