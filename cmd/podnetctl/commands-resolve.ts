import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import { z } from "zod";
import { parseYaml } from "../../daemon/node/yaml-text.ts";
import { decode } from "../../lib/base/decode.ts";
import { fileFault } from "../../lib/base/errors.ts";
import { withClient } from "./session.ts";
import { formatTable } from "./table.ts";

const pod = z.looseObject({
  kind: z.literal("Pod", "must be Pod"),
  metadata: z.looseObject(
    {
      namespace: z.string().default("default"),
      annotations: z.record(z.string(), z.string()).default({}),
    },
    "must be the pod's metadata",
  ),
});

const answer = z.array(
  z.looseObject({
    network: z.string(),
    interface: z.string(),
    default: z.boolean(),
    plugins: z.array(z.string()),
    ipam: z.array(z.string()),
    defaultRoute: z.array(z.string()),
    resource: z.string().optional(),
    provider: z.string().optional(),
    faults: z.array(z.string()).default([]),
  }),
);
type Rows = z.infer<typeof answer>;

/** `podnetctl resolve`: what a pod would get. */
export function addResolveCommand(program: Command): void {
  program
    .command("resolve")
    .description(
      "tell what a pod would get, without doing anything, or what is wrong with what it asks for",
    )
    .requiredOption("-f, --file <pod.yaml>", "the pod's manifest")
    .addOption(
      new Option("-o, --output <form>", "how to print it")
        .choices(["table", "json"])
        .default("table"),
    )
    .action(async (options: { file: string; output: string }, command: Command) => {
      const { metadata } = readPod(options.file);
      const body = JSON.stringify({
        annotations: metadata.annotations,
        namespace: metadata.namespace,
      });
      const text = await withClient(command, "resolving", (client) =>
        client.send({ method: "POST", path: "/v1/resolve", body }),
      );
      const rows = decode(answer, JSON.parse(text), "answer of podnetd");
      console.log(
        options.output === "json" ? JSON.stringify(JSON.parse(text), null, 2) : table(rows),
      );
      const faults = rows.flatMap((row) =>
        row.faults.map((fault) => `network "${row.network}": ${fault}`),
      );
      if (faults.length > 0) throw new Error(`the pod would fail: ${faults.join("; ")}`);
    });
}

function readPod(file: string): z.infer<typeof pod> {
  const documents = parseYaml(readText(file));
  for (const one of documents) {
    if ("message" in one) throw new Error(`read "${file}": line ${one.line}: ${one.message}`);
  }
  const [only] = documents;
  if (only === undefined || !("value" in only) || documents.length > 1) {
    throw new Error(`read "${file}": has ${documents.length} objects: must have one, a Pod`);
  }
  return decode(pod, only.value, `"${file}"`);
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(`read "${file}": ${fileFault(error)}`, { cause: error });
  }
}

function table(rows: Rows): string {
  if (rows.length === 0)
    return "No network: the pod asks for none and there is no default network.";
  const devices = rows.some(({ resource }) => resource !== undefined);
  const head = ["NETWORK", "INTERFACE", "PLUGINS", "IPAM", "DEFAULT ROUTE", "RUNTIME SEES"];
  if (devices) head.push("DEVICE OF");
  return formatTable([
    head,
    ...rows.map((row) => [
      row.network,
      row.interface,
      row.provider === undefined ? row.plugins.join(",") : `left to provider ${row.provider}`,
      row.ipam.join(",") || "-",
      row.defaultRoute.join(",") || "-",
      row.default ? "yes" : "no",
      ...(devices ? [row.resource ?? "-"] : []),
    ]),
  ]);
}
