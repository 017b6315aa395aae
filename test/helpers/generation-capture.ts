import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import {
  type Exchange,
  type Generation,
  general,
  generalText,
  type Message,
  type Places,
  type Written,
} from "./generations.ts";
import { type PluginAnswer, runPlugin } from "./plugin-call.ts";
import type { Build } from "./previous-build.ts";
import { exchangeRaw, RawDaemon, splitMessage } from "./raw-socket.ts";
import { attachmentKinds, kindNetworks, prepareNode } from "./scenario-kinds.ts";
import { ScenarioNode, type ScenarioPod } from "./scenario-node.ts";

/** What a build writes and says, on nodes of its own. */
export async function captureGeneration(build: Build): Promise<Generation> {
  return { nodes: await captureNodes(build), exchanges: await captureExchanges(build) };
}

async function startNode(build: Build): Promise<ScenarioNode> {
  const node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
  await node.daemon.stop();
  node.daemon.program = build.daemon;
  await node.recover();
  return node;
}

async function captureNodes(build: Build): Promise<Readonly<Record<string, Written>>> {
  await using node = await startNode(build);
  const nodes: Record<string, Written> = {};
  for (const { name, networks } of attachmentKinds) {
    const pod = node.pod();
    await node.must("ADD", pod, { networks });
    nodes[name] = writtenOf(node, pod);
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
  }
  return nodes;
}

/** The places of a pod on this node. */
export function placesOf(node: ScenarioNode, pod: ScenarioPod): Places {
  return {
    netns: pod.place.path,
    addresses: node.addresses,
    bin: node.binDir,
    socket: node.daemon.socket,
    id: pod.id,
    uid: pod.uid,
  };
}

/** The pod's record and the addresses of the node, as they are now. */
export function writtenOf(node: ScenarioNode, pod: ScenarioPod): Written {
  const places = placesOf(node, pod);
  const addresses = Object.fromEntries(
    addressFiles(node).map((file) => [
      file,
      generalText(readFileSync(join(node.addresses, file), "utf8"), places).split("\n"),
    ]),
  );
  return { record: linesOf(node, pod).map((line) => general(line, places)), addresses };
}

export function recordFile(node: ScenarioNode, { id }: ScenarioPod): string {
  return join(node.daemon.stateDir, "records", `${id}@eth0.json`);
}

/** The pod's record, line for line. */
export function linesOf(node: ScenarioNode, pod: ScenarioPod): unknown[] {
  const lines = readFileSync(recordFile(node, pod), "utf8").trim().split("\n");
  return lines.map((line) => JSON.parse(line) as unknown);
}

/** Reservations: neither locks nor the hint where to go on. */
export function addressFiles(node: ScenarioNode): string[] {
  const files = readdirSync(node.addresses, { recursive: true, encoding: "utf8" });
  return files
    .filter((file) => statSync(join(node.addresses, file)).isFile())
    .filter((file) => !/(^|\/)(lock|last_reserved_ip.*|\..*)$/.test(file))
    .toSorted();
}

/** In the order of a pod's life. */
export const exchangedVerbs = ["STATUS", "ADD", "CHECK", "GC", "DEL", "bad ADD"] as const;

async function captureExchanges(build: Build): Promise<Readonly<Record<string, Exchange>>> {
  await using node = await startNode(build);
  const pod = node.pod();
  const places = placesOf(node, pod);
  const exchanges: Record<string, Exchange> = {};
  for (const verb of exchangedVerbs) {
    const { request } = await exchangeWith(node, { pod, verb, stub: build.stub, answer: empty });
    const answer = await exchangeRaw(node.daemon.socket, request);
    exchanges[verb] = {
      request: generalMessage(request, places),
      answer: generalMessage(answer, places),
    };
  }
  return exchanges;
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/** Lets a stub ask a daemon that gives this answer; what it sent, and how it ended. */
export async function exchangeWith(
  node: ScenarioNode,
  call: {
    readonly pod: ScenarioPod;
    readonly verb: (typeof exchangedVerbs)[number];
    readonly stub: string;
    readonly answer: string;
  },
): Promise<{ readonly request: string } & Pick<PluginAnswer, "status" | "stdout">> {
  const { pod, verb, stub } = call;
  const socket = `${node.daemon.socket.slice(0, -4)}.raw`;
  await using raw = await RawDaemon.listen(socket);
  raw.answer = call.answer;
  const valid = [{ containerID: pod.id, ifname: "eth0" }];
  const networks = verb === "bad ADD" ? ["nowhere"] : ["bridge", "upper"];
  const run = node.daemon.call({
    verb: verb.replace("bad ", ""),
    containerId: pod.id,
    netns: pod.place.path,
    ifName: "eth0",
    args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=web;K8S_POD_UID=${pod.uid}`,
    ...(verb.endsWith("ADD") ? { networks } : {}),
    config: {
      daemonSocket: socket,
      ...(verb === "GC" ? { "cni.dev/valid-attachments": valid } : {}),
    },
    program: stub,
  });
  const { status, stdout } = await runPlugin(run);
  // The length of both paths is the same.
  return {
    request: (raw.requests[0] ?? "").replaceAll(socket, node.daemon.socket),
    status,
    stdout,
  };
}

/** A message whose head and body name no time, length or place. */
export function generalMessage(text: string, places: Places): Message {
  const { head, body } = splitMessage(text);
  const lines = body.split("\n").map((line) => generalLine(line, places));
  return {
    head: head.replaceAll(/^(content-length|date): .*$/gim, "$1: *"),
    body: lines.join("\n"),
  };
}

function generalLine(line: string, places: Places): string {
  try {
    return JSON.stringify(general(JSON.parse(line), places));
  } catch {
    return generalText(line, places);
  }
}
