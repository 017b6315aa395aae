import { type Command, InvalidArgumentError } from "commander";
import { Client } from "./client.ts";

/** Seconds after which a person is told that the answer takes long. */
const quiet = 1;

/** Runs `work` with a client of the command's `--socket`, and says so on stderr when it takes longer than a second. */
export async function withClient<T>(
  command: Command,
  doing: string,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const { socket, timeout } = command.optsWithGlobals<{ socket: string; timeout: string }>();
  const client = new Client(socket, seconds(timeout) * 1000);
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

function seconds(text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value > 0 && value <= 86_400) return value;
  throw new InvalidArgumentError(`--timeout "${text}" must be a number of seconds`);
}
