import { existsSync } from "node:fs";
import type { Server } from "node:http";
import { errorText } from "../../lib/base/errors.ts";
import type { Log } from "../../lib/base/log.ts";
import { listenOnSocket } from "./server.ts";

/** Milliseconds between looks. */
const lookEvery = 2_000;

export interface SocketKeeperOptions {
  readonly path: string;
  readonly open: () => Server;
  /** All servers of the daemon; a new one is added. The old one stays: closing it would remove the new one's path. */
  readonly servers: Server[];
  readonly log: Log;
  /** Called when the path was found missing: other files beside it may have gone as well. */
  readonly lost?: () => Promise<void>;
}

/** Serves the socket anew when somebody has removed it or its folder: the daemon would run on and nobody could reach it. */
export function keepSocket(options: SocketKeeperOptions): Disposable {
  const { path, open, servers, log, lost } = options;
  let looking = false;
  const look = async (): Promise<void> => {
    if (looking || existsSync(path)) return;
    looking = true;
    try {
      const server = open();
      await listenOnSocket(server, path);
      servers.push(server);
      log.warn({ socket: path }, "socket was removed, served anew");
      await lost?.();
    } catch (error) {
      log.error({ socket: path, fault: errorText(error) }, "socket was removed, can't be served");
    } finally {
      looking = false;
    }
  };
  const timer = setInterval(() => void look(), lookEvery).unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
