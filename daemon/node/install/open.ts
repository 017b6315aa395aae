import { setTimeout as sleep } from "node:timers/promises";
import { errorText } from "../../../lib/base/errors.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import type { NodeContext } from "../context.ts";
import { defaultConflist } from "../resolve.ts";
import { status } from "../status.ts";
import { type InstallEvent, Installer } from "./install.ts";

/** Milliseconds that the default network's configuration may take: it comes from files, or from what was watched. */
const knownWithin = 900;

/** The installer of a node; it does nothing yet. Throws when the configuration lacks what it needs. */
export function openInstaller(
  node: NodeContext,
  onEvent: (event: InstallEvent) => void,
): Installer | undefined {
  const { install, delegateHelper, cniBinDir, cniConfDir, conflistName, socket } = node.config;
  if (install === false) return undefined;
  const [binDir] = cniBinDir;
  if (delegateHelper === undefined || binDir === undefined) {
    throw new Error(
      "install podnet: the stub is not known: set delegateHelper to the podnet executable that belongs to this daemon",
    );
  }
  return new Installer({
    stub: delegateHelper,
    binDir,
    confDir: cniConfDir,
    confName: conflistName,
    socket,
    log: node.log,
    known: () => knownDefault(node),
    unready: () => unreadyDefault(node),
    onEvent,
  });
}

/** undefined where it is not known now, and where there is none. */
async function knownDefault(node: NodeContext): Promise<Conflist | undefined> {
  const late = sleep(knownWithin, undefined, { ref: false });
  return await Promise.race([defaultConflist(node.networks).catch(() => undefined), late]);
}

/** What STATUS says. */
async function unreadyDefault(node: NodeContext): Promise<string | undefined> {
  try {
    await status(node, AbortSignal.timeout(5_000));
    return undefined;
  } catch (error) {
    return errorText(error);
  }
}
