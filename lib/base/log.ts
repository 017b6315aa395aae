import { type DestinationStream, type Logger, pino } from "pino";

export type Log = Logger;

export const logLevels = ["trace", "debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof logLevels)[number];

/** A logger that writes JSON lines to stderr, synchronously, so that nothing is lost when the process is killed. */
export function openLog(level: LogLevel, destination?: DestinationStream): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination ?? pino.destination({ dest: 2, sync: true }),
  );
}
