import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import { secondsOf, withClient } from "./session.ts";
import { formatTable } from "./table.ts";

const removal = z.object({
  done: z.boolean(),
  steps: z.array(z.looseObject({ step: z.string(), done: z.boolean(), detail: z.string() })),
  left: z.array(
    z.looseObject({
      containerId: z.string(),
      pod: z.string().optional(),
      network: z.string(),
      interface: z.string(),
    }),
  ),
});
type Removal = z.infer<typeof removal>;

interface Options {
  readonly node?: boolean;
  readonly force?: boolean;
  readonly wait: string;
  readonly kubeconfig?: string;
  readonly keepObjects?: boolean;
}

const help = `
Without --node the whole cluster is given back: admission webhooks off, controller stopped, each node's own network configuration first again,
running operations and pods with podnet's networks waited for, finalizers and gates off, podnet's objects and programs deleted.
With --node only this node, through its daemon. Both can be repeated at any time and go on where they were.`;

/** Milliseconds between looks. */
const lookEvery = 2_000;

/** `podnetctl uninstall`: gives the cluster, or this node, back. */
export function addUninstallCommand(program: Command): void {
  program
    .command("uninstall")
    .description("give the cluster, or this node, back to what was there before podnet")
    .option("--node", "this node only, through its daemon")
    .option("--force", "also where pods still have podnet's networks, or no other network is there")
    .option("--wait <seconds>", "longest wait for running operations and for pods", "600")
    .option("--kubeconfig <file>", "the cluster's API; default: a pod's own account")
    .option("--keep-objects", "leave podnet's objects and their definitions in the cluster")
    .addHelpText("after", help)
    .action(async (options: Options, command: Command) => {
      const wait = secondsOf("--wait", options.wait) * 1000;
      if (options.node === true) await uninstallNode(command, wait, options.force === true);
      else {
        // The API's client is loaded only here.
        const { uninstallCluster } = await import("./uninstall-cluster.ts");
        await uninstallCluster({
          kubeconfig: options.kubeconfig,
          wait,
          force: options.force === true,
          keepObjects: options.keepObjects === true,
          print: (line) => console.log(line),
        });
      }
    });
}

async function uninstallNode(command: Command, wait: number, force: boolean): Promise<void> {
  const said = new Set<string>();
  for (const until = Date.now() + wait; ; await sleep(lookEvery)) {
    const outcome = await askNode(command, force);
    for (const line of linesOf(outcome).filter((one) => !said.has(one))) {
      console.log(line);
      said.add(line);
    }
    if (outcome.done) return;
    const open = outcome.steps.find(({ done }) => !done);
    if (open?.step !== "configuration" && Date.now() < until) continue;
    if (outcome.left.length > 0) console.log(tableOf(outcome));
    throw new Error(`the node is not given back yet: ${open?.step}: ${open?.detail}`);
  }
}

async function askNode(command: Command, force: boolean): Promise<Removal> {
  const path = `/v1/uninstall?force=${force}`;
  const text = await withClient(command, "giving the node back", (client) =>
    client.send({ method: "POST", path }),
  );
  return decode(removal, JSON.parse(text), "answer of podnetd");
}

function linesOf({ steps }: Removal): string[] {
  return steps.map(({ step, done, detail }) => `${done ? "done" : "wait"}  ${step}: ${detail}`);
}

function tableOf({ left }: Removal): string {
  const rows = left.map((row) => [
    row.containerId.slice(0, 13),
    row.pod ?? "-",
    row.network,
    row.interface,
  ]);
  return formatTable([["CONTAINER", "POD", "NETWORK", "INTERFACE"], ...rows]);
}
