import type { Command } from "commander";
import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { withClient } from "./session.ts";

const collection = z.object({
  freed: z.array(
    z.looseObject({
      containerId: z.string(),
      network: z.string(),
      interface: z.string(),
      ips: z.array(z.string()),
    }),
  ),
  left: z.array(z.object({ what: z.string(), why: z.string() })).default([]),
  faults: z.array(z.string()),
});

/** `podnetctl gc`: frees what is dead for sure, and says what it left and why. */
export function addGcCommand(program: Command): void {
  program
    .command("gc")
    .description(
      "free what no record and no live namespace owns, print it, and what was left and why",
    )
    .action(async (_options: object, command: Command) => {
      const text = await withClient(command, "collecting", (client) =>
        client.send({ method: "POST", path: "/v1/gc" }),
      );
      const { freed, left, faults } = decode(collection, JSON.parse(text), "answer of podnetd");
      for (const row of freed) {
        const addresses = row.ips.length === 0 ? "" : ` ${row.ips.join(",")}`;
        console.log(`freed ${row.containerId} ${row.network} ${row.interface}${addresses}`);
      }
      for (const { what, why } of left) console.log(`left ${what}: ${why}`);
      if (freed.length === 0 && faults.length === 0) console.log("Nothing to free.");
      if (faults.length > 0) throw new Error(`not everything could be freed: ${faults.join("; ")}`);
    });
}
