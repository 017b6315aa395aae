import { Argument, type Command } from "commander";
import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { logLevels } from "../../lib/base/log.ts";
import { withClient } from "./session.ts";

const answer = z.looseObject({ level: z.string() });

/** `podnetctl log-level`: the daemon's log level, now and until it ends. */
export function addLogLevelCommand(program: Command): void {
  program
    .command("log-level")
    .description("print podnetd's log level, or set it until it is restarted")
    .addArgument(new Argument("[level]", "the level to set").choices(logLevels))
    .action(async (level: string | undefined, _options: object, command: Command) => {
      const path = "/v1/log-level";
      const text = await withClient(command, "asking", (client) =>
        client.send(
          level === undefined
            ? { method: "GET", path }
            : { method: "POST", path, body: JSON.stringify({ level }) },
        ),
      );
      console.log(decode(answer, JSON.parse(text), "answer of podnetd").level);
    });
}
