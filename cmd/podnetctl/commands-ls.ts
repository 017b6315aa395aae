import { type Command, Option } from "commander";
import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { withClient } from "./session.ts";
import { formatAge, formatTable } from "./table.ts";

const rows = z.array(
  z.looseObject({
    containerId: z.string(),
    pod: z.string().optional(),
    network: z.string(),
    interface: z.string(),
    ips: z.array(z.string()),
    mac: z.string().optional(),
    state: z.string(),
    created: z.string(),
    device: z.object({ resource: z.string(), id: z.string() }).optional(),
    pciID: z.string().optional(),
    fault: z.string().optional(),
  }),
);
type Row = z.infer<typeof rows>[number];

/** `podnetctl ls`: what podnet attached on this node. */
export function addLsCommand(program: Command): void {
  program
    .command("ls")
    .description(
      "list what is attached on this node: container, pod, network, interface, addresses",
    )
    .option("--pending", "only what an ADD or DEL has not finished, with the reason")
    .addOption(
      new Option("-o, --output <form>", "how to print it")
        .choices(["table", "wide", "json"])
        .default("table"),
    )
    .action(async (options: { pending?: boolean; output: string }, command: Command) => {
      const path = `/v1/attachments?pending=${options.pending === true}`;
      const text = await withClient(command, "listing", (client) =>
        client.send({ method: "GET", path }),
      );
      const empty = options.pending === true ? "Nothing is pending." : "Nothing is attached.";
      console.log(
        options.output === "json"
          ? JSON.stringify(JSON.parse(text), null, 2)
          : table(text, empty, options.output === "wide"),
      );
    });
}

function table(text: string, empty: string, wide: boolean): string {
  const list = decode(rows, JSON.parse(text), "answer of podnetd");
  if (list.length === 0) return empty;
  const now = Date.now();
  const head = ["CONTAINER", "POD", "NETWORK", "INTERFACE", "ADDRESSES", "MAC", "STATE", "AGE"];
  if (wide) head.push("DEVICE", "PCI");
  const faults = [...new Set(list.flatMap(faultLine))];
  return [
    formatTable([
      head,
      ...list.map((row) => [...cells(row, now), ...(wide ? deviceCells(row) : [])]),
    ]),
    ...faults,
  ].join("\n");
}

function cells(row: Row, now: number): string[] {
  return [
    row.containerId.slice(0, 13),
    row.pod ?? "-",
    row.network,
    row.interface,
    row.ips.join(",") || "-",
    row.mac ?? "-",
    row.state,
    formatAge(Date.parse(row.created), now),
  ];
}

/** An id alone says nothing: two resources may use the same. */
function deviceCells({ device, pciID }: Row): string[] {
  return [device === undefined ? "-" : `${device.resource}=${device.id}`, pciID ?? "-"];
}

function faultLine(row: Row): string[] {
  return row.fault === undefined ? [] : [`${row.containerId.slice(0, 13)}: ${row.fault}`];
}
