import type { Command } from "commander";
import { Client } from "./client.ts";

/** Seconds after which a person is told that the answer takes long. */
const quiet = 1;

/** The command line is wrong in a way that the parser does not know of. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Runs `work` with a client of the command's `--socket`, and says so on stderr when it takes longer than a second. */
export async function withClient<T>(
  command: Command,
  doing: string,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const { socket, timeout } = command.optsWithGlobals<{ socket: string; timeout: string }>();
  const client = new Client(socket, secondsOf("--timeout", timeout) * 1000);
  const started = Date.now();
  const timer = setInterval(() => {
    console.error(`${doing} ... ${Math.round((Date.now() - started) / 1000)} s`);
  }, quiet * 1000);
  try {
    return await work(client);
  } finally {
    clearInterval(timer);
    await client.close();
  }
}

/** The seconds of an option. Throws a UsageError that names it. */
export function secondsOf(option: string, text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value >= 1 && value <= 86_400) return value;
  throw new UsageError(`${option} "${text}": must be a number of seconds from 1 to 86400`);
}
