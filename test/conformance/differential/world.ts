import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { JsonObject } from "../../../lib/base/json.ts";
import type { CniVerb } from "../../../lib/cni/types.ts";
import { InProcess } from "../../helpers/in-process.ts";
import { Lab, type Place, runCommand } from "../../helpers/lab.ts";
import { part } from "../../helpers/parts.ts";
import { type PluginAnswer, runPlugin } from "../../helpers/plugin-call.ts";
import { describeJson, Names, type Snapshot, snapshot } from "./snapshot.ts";

/** One attachment's call; CHECK gets the result of its ADD as prevResult. */
export interface Step {
  readonly verb: CniVerb;
  readonly id: string;
  readonly ifName: string;
}

/** One configuration, and what is done with it on both sides. */
export interface Case {
  /** Unique in its list. */
  readonly name: string;
  readonly type: string;
  /** Without name, type and cniVersion (1.1.0 unless given). `$DATA` in a text is the world's folder, `$NETNS` CNI_NETNS (for the prevResult of a chained type). */
  readonly config: JsonObject;
  /** CNI_ARGS. */
  readonly args?: string;
  /** `works`: both must; `fails`: both must refuse the first ADD. */
  readonly outcome: "works" | "fails";
  /** The keys whose loss this case notices: `mtu`, `ipam.ranges`, `runtimeConfig.mac`, `CNI_ARGS.IP`. */
  readonly keys: readonly string[];
  /** Shell lines that prepare the node, with $POD and $DATA. */
  readonly prepare?: string;
  /** Default: ADD, CHECK (where there is IPAM: without it the reference's CHECK always fails) and DEL of c1's eth0. */
  readonly steps?: readonly Step[];
  /** A shell line run in the pod after the last ADD; its exit status is compared. An uplink of the node leads to 192.0.2.2, which knows no pod. */
  readonly probe?: string;
  /** A driver that this kernel may lack. */
  readonly driver?: "vlan";
}

export const attachment: readonly Step[] = [
  { verb: "ADD", id: "c1", ifName: "eth0" },
  { verb: "CHECK", id: "c1", ifName: "eth0" },
  { verb: "DEL", id: "c1", ifName: "eth0" },
];

type Call = (step: Step, config: JsonObject) => Promise<PluginAnswer>;

/** IPAM plugins do nothing in a namespace: their cases need none. */
const ipamTypes: ReadonlySet<string> = new Set(["host-local", "static"]);

/** podnet's side of all cases of a file: one node with one process in it, since a process is what costs time. Emptied between cases. */
interface PodnetSide {
  readonly lab: Lab;
  readonly node: Place;
  readonly plugins: InProcess;
}
let side: PodnetSide | undefined;

function podnetSide(): PodnetSide {
  if (side !== undefined) return side;
  const lab = new Lab();
  const node = lab.node();
  side = { lab, node, plugins: InProcess.start(node) };
  return side;
}

/** Ends podnet's side; to be called after the last case of a file. */
export async function endPodnetSide(): Promise<void> {
  await side?.plugins[Symbol.asyncDispose]();
  side?.lab[Symbol.dispose]();
  side = undefined;
}

const emptyNode = `
for link in $(ip -j link | jq -r '.[].ifname'); do [ "$link" = lo ] || ip link del "$link" 2>/dev/null || true; done
sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
`;

interface World {
  readonly folder: string;
  readonly places?: { readonly node: Place; readonly pod: Place };
  /** CNI_NETNS. */
  readonly netns: string;
}

/** Runs a case in an empty node and a fresh pod, by the reference's executables or by podnet's plugins, and tells all that can be seen of it. */
export async function perform(which: "reference" | "podnet", item: Case): Promise<Snapshot> {
  using lab = new Lab();
  if (which === "reference") {
    const world = worldFor(lab, item, () => lab.node());
    prepare(world, item);
    return await runSteps(item, world, referenceCall(item, world));
  }
  const { node, plugins } = podnetSide();
  const world = worldFor(lab, item, () => node);
  try {
    prepare(world, item);
    return await runSteps(item, world, podnetCall(item, world, plugins));
  } finally {
    if (world.places !== undefined) node.run("bash", "-c", emptyNode);
  }
}

function worldFor(lab: Lab, item: Case, makeNode: () => Place): World {
  const folder = lab.folder();
  if (ipamTypes.has(item.type)) return { folder, netns: "/run/netns/podnet-test-none" };
  const places = { node: makeNode(), pod: lab.pod() };
  if (item.probe !== undefined) uplink(places.node, lab.pod());
  return { folder, places, netns: places.pod.path };
}

function prepare({ folder, places }: World, item: Case): void {
  if (item.prepare === undefined) return;
  const command = ["env", `DATA=${folder}`, `POD=${places?.pod.name}`, "bash", "-ec", item.prepare];
  runCommand(places?.node.wrap(command) ?? command);
}

function podnetCall(item: Case, { netns }: World, plugins: InProcess): Call {
  return (step, config) =>
    plugins.run({
      type: item.type,
      verb: step.verb,
      containerId: step.id,
      ifName: step.ifName,
      netns,
      config,
      ...(item.args !== undefined && { args: item.args }),
    });
}

function referenceCall(item: Case, { netns, places }: World): Call {
  const path = part("reference-plugins");
  return (step, config) =>
    runPlugin({
      program: join(path, item.type),
      verb: step.verb,
      containerId: step.id,
      ifName: step.ifName,
      netns,
      path,
      config,
      ...(places !== undefined && { node: places.node }),
      ...(item.args !== undefined && { args: item.args }),
    });
}

async function runSteps(item: Case, world: World, call: Call): Promise<Snapshot> {
  const out = new Map<string, string>();
  const results = new Map<string, JsonObject>();
  const config = configOf(item, world);
  const steps =
    item.steps ?? attachment.filter(({ verb }) => verb !== "CHECK" || "ipam" in item.config);
  const lastAdd = steps.findLastIndex(({ verb }) => verb === "ADD");
  for (const [index, step] of steps.entries()) {
    const path = `${index + 1} ${step.verb}`;
    const answer = await call(step, { ...config, ...previous(step, results) });
    if (step.verb === "ADD" && answer.status === 0) results.set(attachmentOf(step), answer.json);
    describeAnswer(world, { path, step, answer, out });
    if (index === lastAdd && item.probe !== undefined && world.places !== undefined) {
      out.set(`${path}.probe`, await probe(world.places.pod, item.probe));
    }
  }
  return out;
}

function attachmentOf(step: Step): string {
  return `${step.id}/${step.ifName}`;
}

function previous(step: Step, results: ReadonlyMap<string, JsonObject>): JsonObject {
  const prevResult = results.get(attachmentOf(step));
  return step.verb === "ADD" || prevResult === undefined ? {} : { prevResult };
}

interface Answered {
  readonly path: string;
  readonly step: Step;
  readonly answer: PluginAnswer;
  readonly out: Map<string, string>;
}

/** Status, state and result of one call. CHECK changes nothing, and after an ADD that failed DEL has to tidy up first. */
function describeAnswer(world: World, { path, step, answer, out }: Answered): void {
  out.set(`${path}.status`, String(answer.status));
  if (answer.status !== 0) out.set(`${path}.error`, String(answer.json?.msg));
  if (step.verb === "CHECK" || (step.verb === "ADD" && answer.status !== 0)) return;
  const names = new Names();
  for (const [key, value] of snapshot(world, names)) out.set(`${path}.${key}`, value);
  if (step.verb !== "ADD") return;
  names.add(world.netns, "<pod>");
  describeJson(answer.json, `${path}.result`, { names, out });
}

function configOf(item: Case, world: World): JsonObject {
  const whole = { cniVersion: "1.1.0", name: "blue", type: item.type, ...item.config };
  return JSON.parse(
    JSON.stringify(whole).replaceAll("$DATA", world.folder).replaceAll("$NETNS", world.netns),
  ) as JsonObject;
}

function uplink(node: Place, outside: Place): void {
  const commands = [
    `ip link add up0 type veth peer name up0 netns ${outside.name}`,
    "ip address add 192.0.2.1/24 dev up0 && ip address add 2001:db8::1/64 dev up0 nodad",
    "ip link set up0 up",
    `ip -n ${outside.name} address add 192.0.2.2/24 dev up0`,
    `ip -n ${outside.name} address add 2001:db8::2/64 dev up0 nodad`,
    `ip -n ${outside.name} link set up0 up`,
  ];
  node.run("bash", "-ec", commands.join("\n"));
}

async function probe(pod: Place, command: string): Promise<string> {
  const [program = "", ...args] = pod.wrap(["bash", "-c", command]);
  const child = spawn(program, args, { stdio: "ignore" });
  const [status] = await once(child, "close");
  return String(status);
}
