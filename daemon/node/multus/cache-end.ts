import { copyFileSync } from "node:fs";
import { basename, join } from "node:path";
import { errorCode, errorText } from "../../../lib/base/errors.ts";
import { ensurePrivateDir, removeFile } from "../../../lib/base/files.ts";
import type { NodeContext } from "../context.ts";
import type { SandboxRecord } from "../record.ts";

/** Where damaged files of Multus are kept, below the state directory: what they stood for may not all be given back. */
export const tornFolder = "multus-unreadable";

/**
 * Removes the files of others that said what a sandbox had, once all of it is given back; a damaged one is moved to podnet's own folder, for a person to
 * look at. A failure keeps no pod from going: it is logged, and the files are looked at again when the container is.
 */
export function endInheritance(
  { config, log }: Pick<NodeContext, "config" | "log">,
  { containerId, inherited }: SandboxRecord,
): void {
  if (inherited === undefined) return;
  try {
    for (const file of inherited.files) removeFile(file);
    if (inherited.torn !== undefined) setAside(join(config.stateDir, tornFolder), inherited.torn);
  } catch (error) {
    log.warn({ containerId, fault: errorText(error) }, "files of Multus can't be removed");
  }
}

/** By copying: the two folders may be different mounts. */
function setAside(folder: string, file: string): void {
  ensurePrivateDir(folder);
  try {
    copyFileSync(file, join(folder, basename(file)));
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
  removeFile(file);
}
