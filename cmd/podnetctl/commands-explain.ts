import { type Command, Option } from "commander";
import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { UsageError, withClient } from "./session.ts";
import { formatTable, printable } from "./table.ts";

const texts = z.array(z.string());

const answer = z.looseObject({
  pod: z.looseObject({
    namespace: z.string().optional(),
    name: z.string().optional(),
    uid: z.string().optional(),
  }),
  asked: z.looseObject({
    source: z.string(),
    networks: z.string().optional(),
    annotations: z.record(z.string(), z.string()),
    namespaceAnnotations: z.record(z.string(), z.string()),
  }),
  resolved: z.looseObject({
    source: z.string(),
    networks: z.array(
      z.looseObject({ network: z.string(), interface: z.string(), plugins: texts, ipam: texts }),
    ),
    fault: z.string().optional(),
    code: z.number().optional(),
    next: z.string().optional(),
  }),
  done: z.array(
    z.looseObject({
      containerId: z.string(),
      network: z.string(),
      interface: z.string(),
      ips: texts,
      mac: z.string().optional(),
      state: z.string(),
      created: z.string(),
      fault: z.string().optional(),
    }),
  ),
  before: z.array(z.looseObject({ network: z.string(), interface: z.string() })),
  attempts: z.array(
    z.looseObject({
      at: z.string(),
      ms: z.number(),
      verb: z.string(),
      containerId: z.string(),
      code: z.number().optional(),
      name: z.string().optional(),
      fault: z.string().optional(),
      details: z.string().optional(),
      next: z.string().optional(),
    }),
  ),
  events: z.array(
    z.looseObject({
      type: z.string(),
      reason: z.string(),
      message: z.string(),
      last: z.string(),
      count: z.number(),
    }),
  ),
});
type Answer = z.infer<typeof answer>;

interface ExplainOptions {
  readonly namespace: string;
  readonly container?: string;
  readonly output: string;
}

/** `podnetctl explain`: what became of a pod's networks. */
export function addExplainCommand(program: Command): void {
  program
    .command("explain [pod]")
    .description("tell what a pod asked for, what that means, what was done, and where it failed")
    .option("-n, --namespace <name>", "the pod's namespace", "default")
    .option("--container <id>", "a container instead of a pod; the id's beginning is enough")
    .addOption(
      new Option("-o, --output <form>", "how to print it")
        .choices(["text", "json"])
        .default("text"),
    )
    .action(async (pod: string | undefined, options: ExplainOptions, command: Command) => {
      const query = queryOf(pod, options);
      const text = await withClient(command, "explaining", (client) =>
        client.send({ method: "GET", path: `/v1/explain?${query}` }),
      );
      const value: unknown = JSON.parse(text);
      console.log(
        options.output === "json"
          ? JSON.stringify(value, null, 2)
          : report(decode(answer, value, "answer of podnetd")),
      );
    });
}

function queryOf(
  pod: string | undefined,
  { namespace, container }: ExplainOptions,
): URLSearchParams {
  if ((pod === undefined) === (container === undefined)) {
    throw new UsageError("explain: name either a pod or a container (--container ID)");
  }
  if (pod !== undefined) return new URLSearchParams({ pod, namespace });
  return new URLSearchParams({ container: container ?? "" });
}

function report(found: Answer): string {
  return [
    ...section("POD", [podLine(found)]),
    ...section("ASKED", askedLines(found)),
    ...section("RESOLVED", resolvedLines(found)),
    ...section("DONE", doneLines(found)),
    ...section("CALLS", found.attempts.flatMap(attemptLines)),
    ...section("EVENTS", eventLines(found)),
  ].join("\n");
}

function section(title: string, lines: readonly string[]): string[] {
  return [title, ...(lines.length === 0 ? ["nothing"] : lines).map((line) => `  ${line}`)];
}

function podLine({ pod }: Answer): string {
  if (pod.name === undefined) return "none: the runtime named none";
  return printable(`${pod.namespace ?? "default"}/${pod.name}  uid ${pod.uid ?? "unknown"}`);
}

function askedLines({ asked }: Answer): string[] {
  const own = Object.entries(asked.annotations).map(([key, value]) => `${key}: ${value}`);
  const place = Object.entries(asked.namespaceAnnotations).map(
    ([key, value]) => `namespace's ${key}: ${value}`,
  );
  const call = asked.networks === undefined ? [] : [`the runtime's call: ${asked.networks}`];
  const all = [...own, ...place, ...call];
  if (all.length > 0) return all.map(printable);
  return asked.source === "unknown"
    ? ["not known: the runtime passed no annotations, and there is no cluster to ask"]
    : ["no annotation of the pod speaks of networks: it gets the default network"];
}

function resolvedLines({ resolved }: Answer): string[] {
  if (resolved.fault !== undefined) {
    return [
      printable(`refused: ${resolved.fault} (code ${resolved.code ?? 999})`),
      `to do: ${resolved.next ?? ""}`,
    ];
  }
  if (resolved.networks.length === 0) return [];
  const rows = resolved.networks.map(({ network, interface: ifName, plugins, ipam }) => {
    return [network, ifName, plugins.join(","), ipam.join(",") || "-"];
  });
  const table = formatTable([["NETWORK", "INTERFACE", "PLUGINS", "IPAM"], ...rows]).split("\n");
  const source = resolved.source === "record" ? [] : ["what it would get now:"];
  return [...source, ...table];
}

function doneLines({ done, attempts, before }: Answer): string[] {
  if (done.length === 0) {
    return before.map(({ network, interface: ifName }) =>
      printable(`${ifName} of network ${network}: attached before podnet, given back by its DEL`),
    );
  }
  const took = (containerId: string): string => {
    const add = attempts.findLast(
      (one) => one.verb === "ADD" && one.containerId === containerId && one.code === undefined,
    );
    return add === undefined ? "-" : `${add.ms} ms`;
  };
  const rows = done.map((row) => [
    row.network,
    row.interface,
    row.ips.join(",") || "-",
    row.mac ?? "-",
    row.state,
    row.created,
    took(row.containerId),
    row.containerId.slice(0, 13),
  ]);
  const head = ["NETWORK", "INTERFACE", "ADDRESSES", "MAC", "STATE", "SINCE", "TOOK", "CONTAINER"];
  const faults = [...new Set(done.flatMap(({ fault }) => fault ?? []))];
  return [
    ...formatTable([head, ...rows]).split("\n"),
    ...faults.map((fault) => printable(`not given back yet: ${fault}`)),
  ];
}

function attemptLines(call: Answer["attempts"][number]): string[] {
  const start = `${call.at} ${call.verb} ${call.containerId.slice(0, 13)} ${call.ms} ms`;
  if (call.code === undefined) return [printable(`${start}: done`)];
  return [
    printable(`${start}: code ${call.code} (${call.name ?? ""}): ${call.fault ?? ""}`),
    ...(call.details === undefined ? [] : [printable(`  details: ${call.details}`)]),
    `  to do: ${call.next ?? ""}`,
  ];
}

function eventLines({ events }: Answer): string[] {
  return events.map(({ last, type, reason, message, count }) =>
    printable(`${last} ${type} ${reason} (${count}): ${message}`),
  );
}
