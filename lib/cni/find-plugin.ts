import { access, constants, stat } from "node:fs/promises";
import { join } from "node:path";
import { CniError, cniCode } from "./errors.ts";
import { isPluginType } from "./names.ts";

/**
 * Finds the executable of a plugin type: the first regular file of that name in the directories of CNI_PATH that may be
 * executed. Throws a CniError: code 7 when the type is a path, 50 when there is no such executable (yet).
 */
export async function findPlugin(type: string, cniPath: readonly string[]): Promise<string> {
  if (!isPluginType(type)) {
    const message = `find plugin ${JSON.stringify(type)}: must be the name of a plugin, without a path`;
    throw new CniError(cniCode.invalidNetworkConfig, message);
  }
  for (const dir of cniPath) {
    const path = join(dir, type);
    if (await isExecutable(path)) return path;
  }
  const where = cniPath.length === 0 ? "CNI_PATH is empty" : `no executable in ${quoted(cniPath)}`;
  const message = `find plugin "${type}": ${where}: install it there or correct the type or CNI_PATH`;
  throw new CniError(cniCode.pluginNotAvailable, message);
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    if (!(await stat(path)).isFile()) return false;
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function quoted(dirs: readonly string[]): string {
  return dirs.map((dir) => `"${dir}"`).join(", ");
}
