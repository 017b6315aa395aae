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
  /** Without name, type and cniVersion (1.1.0 unless given). `$DATA` in a text is the world's folder. */
  readonly config: JsonObject;
  /** CNI_ARGS. */
  readonly args?: string;
  /** `works`: both must; `fails`: both must refuse the first ADD. */
  readonly outcome: "works" | "fails";
  /** The keys whose loss this case notices: `mtu`, `ipam.ranges`, `runtimeConfig.mac`, `CNI_ARGS.IP`. */
  readonly keys: readonly string[];
  /** Shell lines that prepare the node, with $POD and $DATA. */
  readonly prepare?: string;
  /** Default: ADD, CHECK and DEL of c1's eth0. */
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

/** IPAM plugins do nothing in a namespace: their cases need none, and one process of podnet's serves them all. */
const ipamTypes: ReadonlySet<string> = new Set(["host-local", "static"]);
let ipamProcess: InProcess | undefined;

/** Ends the process that served the IPAM cases. */
export async function endIpamProcess(): Promise<void> {
  await ipamProcess?.[Symbol.asyncDispose]();
  ipamProcess = undefined;
}

interface World {
  readonly folder: string;
  readonly places?: { readonly node: Place; readonly pod: Place };
  /** CNI_NETNS. */
  readonly netns: string;
}

/** Runs a case in a fresh node and pod, by the reference's executables or by podnet's plugins, and tells all that can be seen of it. */
export async function perform(which: "reference" | "podnet", item: Case): Promise<Snapshot> {
  using lab = new Lab();
  const world = ipamTypes.has(item.type) ? ipamWorld(lab) : fullWorld(lab, item);
  prepare(world, item);
  if (which === "reference") return await runSteps(item, world, referenceCall(item, world));
  if (world.places === undefined) {
    ipamProcess ??= InProcess.start();
    return await runSteps(item, world, podnetCall(item, world, ipamProcess));
  }
  await using plugins = InProcess.start(world.places.node);
  return await runSteps(item, world, podnetCall(item, world, plugins));
}

function ipamWorld(lab: Lab): World {
  return { folder: lab.folder(), netns: "/run/netns/podnet-test-none" };
}

function fullWorld(lab: Lab, item: Case): World {
  const places = { node: lab.node(), pod: lab.pod() };
  if (item.probe !== undefined) uplink(places.node, lab.pod());
  return { folder: lab.folder(), places, netns: places.pod.path };
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
  const steps = item.steps ?? attachment;
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

/** Status, state and result of one call. After one that failed, other than DEL, the state says nothing: DEL has to tidy up first. */
function describeAnswer(world: World, { path, step, answer, out }: Answered): void {
  out.set(`${path}.status`, String(answer.status));
  if (answer.status !== 0 && step.verb !== "DEL") return;
  const names = new Names();
  for (const [key, value] of snapshot(world, names)) out.set(`${path}.${key}`, value);
  if (step.verb !== "ADD") return;
  names.add(world.netns, "<pod>");
  describeJson(answer.json, `${path}.result`, { names, out });
}

function configOf(item: Case, world: World): JsonObject {
  const whole = { cniVersion: "1.1.0", name: "blue", type: item.type, ...item.config };
  return JSON.parse(JSON.stringify(whole).replaceAll("$DATA", world.folder)) as JsonObject;
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
