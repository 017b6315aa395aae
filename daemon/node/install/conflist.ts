import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";

/** podnet's own network name and plugin type. */
const own = "podnet";

/** What every runtime is to pass on: without them annotations and host ports never arrive. */
const always = ["io.kubernetes.cri.pod-annotations", "portMappings", "bandwidth"];

/**
 * Seconds that a DEL waits for a podnetd that is away. A kubelet repeats DELs that fail; one that takes down sandboxes one after the
 * other (1.20 does) must come to podnetd's own before its successor can be started.
 */
const delWait = 1;

export interface OwnConflist {
  readonly socket: string;
  /** The default network: what its plugins declare must reach podnet first. undefined: not known now. */
  readonly defaultNetwork?: Conflist | undefined;
}

/** podnet's network configuration for the runtime, as the text of its file. The same input gives the same text. */
export function ownConflist({ socket, defaultNetwork }: OwnConflist): string {
  const declared = (defaultNetwork?.plugins ?? []).flatMap(({ capabilities }) =>
    Object.entries(capabilities ?? {}).flatMap(([name, on]) => (on ? [name] : [])),
  );
  const names = [...new Set([...always, ...declared.toSorted()])];
  const config = {
    // Old tools refuse 1.1.0 alone; new ones take the newest of the list.
    cniVersion: "1.0.0",
    cniVersions: ["1.0.0", "1.1.0"],
    name: own,
    plugins: [
      {
        type: own,
        daemonSocket: socket,
        daemonWaitDel: delWait,
        capabilities: Object.fromEntries(names.map((name) => [name, true])),
      },
    ],
  };
  return `${JSON.stringify(config, null, 2)}\n`;
}

/** Whether a file's text leads a runtime to this daemon: a whole configuration of podnet with its socket. */
export function isOwnConflist(text: string, socket: string): boolean {
  const plugins = parse(text)?.["plugins"];
  if (!Array.isArray(plugins)) return false;
  const [plugin] = plugins as readonly unknown[];
  return isJsonObject(plugin) && plugin["type"] === own && plugin["daemonSocket"] === socket;
}

function parse(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) && value["name"] === own ? value : undefined;
  } catch {
    return undefined;
  }
}

/** What to do about the file. */
export type ConflistStep = "keep" | "install" | "update" | "restore" | "wait";

export interface ConflistState {
  /** The file's text; undefined: there is none. */
  readonly present: string | undefined;
  /** What it should be. */
  readonly wanted: string;
  readonly socket: string;
  /** The default network is known, so that `wanted` is complete. */
  readonly defaultKnown: boolean;
  /** The default network can attach now. */
  readonly defaultReady: boolean;
  /** This daemon has seen the file in place since it started. */
  readonly installed: boolean;
}

/**
 * A file that was in place is put back at once whatever the default network does: a directory with podnet's file and a network that is
 * away gives errors that are tried again, one without it gives pods that lack networks.
 */
export function conflistStep(state: ConflistState): ConflistStep {
  const { present, wanted, socket, defaultKnown, defaultReady, installed } = state;
  if (present === undefined) {
    if (installed) return "restore";
    return defaultReady ? "install" : "wait";
  }
  if (present === wanted) return "keep";
  if (!isOwnConflist(present, socket)) return installed ? "restore" : "update";
  return defaultKnown ? "update" : "keep";
}
