import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { type Log, type LogLevel, logLevels } from "../../lib/base/log.ts";

const levelSchema = z.object({
  level: z.enum(logLevels, `must be one of ${logLevels.join(", ")}`),
});

/** Sets the daemon's log level from a request's body until it ends or is told another; says so in the log, whatever the levels. */
export function changeLogLevel(log: Log, body: unknown): { readonly level: string } {
  const { level } = decode(levelSchema, body, "log level");
  setLogLevel(log, level);
  return { level };
}

function setLogLevel(log: Log, level: LogLevel): void {
  const before = log.level;
  log.level = level;
  log.child({}, { level: "info" }).info({ before, level }, "log level changed");
}

/** Switches between `debug` and what it was before: for a daemon whose socket does not answer (SIGUSR2). */
export function debugSwitch(log: Log): () => void {
  let before: string | undefined;
  return () => {
    const level = log.level === "debug" && before !== undefined ? before : "debug";
    if (log.level !== "debug") before = log.level;
    setLogLevel(log, logLevels.find((known) => known === level) ?? "info");
  };
}
