import { readdir, readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { errorCode, errorText, fileFault } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import {
  type Conflist,
  type ConflistDefaults,
  closeConflist,
  decodeOpenConflist,
} from "./conflist.ts";
import { CniError, cniCode } from "./errors.ts";
import { parseJsonObject } from "./json-text.ts";

/** Endings of the files that runtimes read. */
export const confExtensions: readonly string[] = [".conflist", ".conf", ".json"];

/** A configuration file that could not be used. */
export interface ConfFault {
  readonly path: string;
  readonly error: unknown;
}

/** What a configuration directory holds: the usable lists in the order of their file names, and the files that are wrong. */
export interface ConfDir {
  readonly lists: readonly Conflist[];
  readonly faults: readonly ConfFault[];
}

/**
 * Reads every network configuration of a directory. A directory that does not exist holds none; a wrong file is reported and does
 * not hide the others. Throws a CniError (code 5) when the directory can't be read.
 */
export async function readConfDir(dir: string): Promise<ConfDir> {
  const lists: Conflist[] = [];
  const faults: ConfFault[] = [];
  for (const name of await filesIn(dir, confExtensions)) {
    const path = join(dir, name);
    try {
      lists.push(await readConflist(path));
    } catch (error) {
      faults.push({ path, error });
    }
  }
  return { lists, faults };
}

/**
 * The configuration of that network name in the directory, the first one by file name; undefined when there is none. Throws a CniError
 * that lists the wrong files when there is none but one of those might have been it.
 */
export async function findConflist(dir: string, network: string): Promise<Conflist | undefined> {
  const { lists, faults } = await readConfDir(dir);
  const found = lists.find(({ name }) => name === network);
  if (found !== undefined || faults.length === 0) return found;
  const details = faults.map(({ path, error }) => `${path}: ${errorText(error)}`).join("\n");
  const files = faults.map(({ path }) => `"${path}"`).join(", ");
  const message = `find network configuration "${network}" in "${dir}": none has that name, and can't be read: ${files}`;
  throw new CniError(cniCode.invalidNetworkConfig, message, { details });
}

/**
 * Reads one configuration file; unless it sets `loadOnlyInlinedPlugins`, the plugin objects of `<directory>/<network name>/*.conf` are
 * appended in the order of their names. Throws a CniError that names the file.
 */
export async function readConflist(
  path: string,
  defaults: ConflistDefaults = {},
): Promise<Conflist> {
  try {
    const open = decodeOpenConflist(await readFile(path, "utf8"), defaults);
    if (open.loadOnlyInlinedPlugins) return closeConflist(open, []);
    return closeConflist(open, await readPlugins(join(dirname(path), open.name)));
  } catch (error) {
    throw inFile(path, error);
  }
}

async function readPlugins(dir: string): Promise<readonly Json[]> {
  const plugins: Json[] = [];
  for (const name of await filesIn(dir, [".conf"])) {
    const path = join(dir, name);
    plugins.push(parseJsonObject(await readFile(path, "utf8"), `plugin configuration "${path}"`));
  }
  return plugins;
}

async function filesIn(dir: string, wanted: readonly string[]): Promise<readonly string[]> {
  try {
    const entries = await readdir(dir, { withFileTypes: true });
    const files = entries.filter(
      (entry) => !entry.isDirectory() && wanted.includes(extname(entry.name)),
    );
    return files.map(({ name }) => name).sort();
  } catch (error) {
    if (errorCode(error) === "ENOENT" || errorCode(error) === "ENOTDIR") return [];
    throw inFile(dir, error);
  }
}

function inFile(path: string, cause: unknown): CniError {
  const known = cause instanceof CniError;
  const details = known && cause.details !== undefined ? { details: cause.details } : {};
  const code = known ? cause.code : cniCode.ioFailure;
  return new CniError(code, `read "${path}": ${fileFault(cause)}`, { cause, ...details });
}
