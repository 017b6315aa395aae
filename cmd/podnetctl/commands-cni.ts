import type { Command } from "commander";
import { type AttachmentOptions, callCni } from "./cni-calls.ts";
import { UsageError, withClient } from "./session.ts";

/** The id of a namespace that a person attaches by hand: its path's last part, unless `--id` says otherwise. */
function options(netns: string, given: Partial<AttachmentOptions>): AttachmentOptions {
  if (!netns.startsWith("/")) {
    throw new UsageError(`netns "${netns}": must be an absolute path, as in "/run/netns/web"`);
  }
  const id = given.id ?? `ctl-${netns.split("/").filter(Boolean).at(-1) ?? "netns"}`;
  return {
    id: id.replace(/[^A-Za-z0-9_.-]/g, "-"),
    ifname: given.ifname ?? "eth0",
    cniPath: given.cniPath ?? "/opt/cni/bin",
    ...(given.networks === undefined ? {} : { networks: given.networks }),
    ...(given.args === undefined ? {} : { args: given.args }),
  };
}

function attachmentCommand(program: Command, name: string, description: string): Command {
  return program
    .command(`${name} <netns>`)
    .description(description)
    .option("--id <id>", "container id (default: made from the namespace's name)")
    .option("--ifname <name>", "interface of the default network (default: eth0)")
    .option("--cni-path <dirs>", "where plugin executables are (default: /opt/cni/bin)")
    .option("--args <pairs>", "CNI_ARGS, for example K8S_POD_NAME=web;K8S_POD_NAMESPACE=team-a");
}

function print(text: string): void {
  if (text !== "") console.log(JSON.stringify(JSON.parse(text), null, 2));
}

/** `podnetctl add`, `del`, `check` and `status`: the CNI verbs by hand, through the daemon. */
export function addCniCommands(program: Command): void {
  attachmentCommand(program, "add", "attach networks to a network namespace and print the result")
    .option(
      "--networks <list>",
      "the networks, such as blue,red@net5 (default: the default network)",
    )
    .action(async (netns: string, given: Partial<AttachmentOptions>, command: Command) => {
      const call = { verb: "ADD", netns, options: options(netns, given) } as const;
      print(await withClient(command, "attaching", (client) => callCni(client, call)));
    });
  attachmentCommand(program, "del", "give back everything that add attached to a namespace").action(
    async (netns: string, given: Partial<AttachmentOptions>, command: Command) => {
      const call = { verb: "DEL", netns, options: options(netns, given) } as const;
      await withClient(command, "detaching", (client) => callCni(client, call));
    },
  );
  attachmentCommand(program, "check", "compare a namespace with what was attached").action(
    async (netns: string, given: Partial<AttachmentOptions>, command: Command) => {
      const call = { verb: "CHECK", netns, options: options(netns, given) } as const;
      await withClient(command, "checking", (client) => callCni(client, call));
      console.log("Everything is as it was attached.");
    },
  );
  program
    .command("status")
    .description("tell whether the daemon runs and the default network can attach")
    .action(async (_options: object, command: Command) => {
      await withClient(command, "asking", (client) => callCni(client, { verb: "STATUS" }));
      console.log("Ready.");
    });
}
