import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { isMap, isScalar, parseDocument, visit } from "yaml";
import { formatTable } from "../cmd/podnetctl/table.ts";
import { Daemon } from "./helpers/daemon.ts";
import { Lab, type Place } from "./helpers/lab.ts";
import { mustRunPlugin } from "./helpers/plugin-call.ts";

/**
 * The main job, for eyes: a node, podnetd on it, three pods on two networks, their results, a ping over each network, the proof that the networks
 * are apart, and the clean end. "Pods" are network namespaces, as a container runtime makes them; node and pods vanish at the end.
 */

interface Pod {
  readonly name: string;
  readonly place: Place;
  readonly networks: string;
}

interface Result {
  readonly interfaces: readonly {
    readonly name: string;
    readonly mac?: string;
    readonly sandbox?: string;
    readonly podNetwork?: string;
  }[];
  readonly ips: readonly {
    readonly address: string;
    readonly gateway?: string;
    readonly interface?: number;
    readonly podNetwork?: string;
  }[];
}

const stub = resolve("dist/bin/podnet");
const samples = resolve("conf/samples");

function say(text = ""): void {
  process.stdout.write(`${text}\n`);
}

function step(text: string): void {
  say(`\n== ${text}`);
}

function podArgs(pod: Pod): string {
  return `K8S_POD_NAMESPACE=demo;K8S_POD_NAME=${pod.name};PODNET_NETWORKS=${pod.networks}`;
}

async function call(daemon: Daemon, verb: string, pod: Pod): Promise<unknown> {
  return await mustRunPlugin(
    daemon.call({
      verb,
      containerId: pod.name,
      netns: pod.place.path,
      ifName: "eth0",
      args: podArgs(pod),
    }),
  );
}

/** One line an interface: what the pod got, by network. */
function rowsOf(pod: Pod, result: Result): string[][] {
  return result.interfaces.flatMap((link, place) => {
    if (link.sandbox === undefined) return [];
    const ips = result.ips.filter((ip) => ip.interface === place);
    const gateways = ips.flatMap((ip) => ip.gateway ?? []);
    return [
      [
        pod.name,
        link.podNetwork ?? "-",
        link.name,
        ips.map((ip) => ip.address).join(" "),
        gateways.join(" ") || "-",
        link.mac ?? "-",
      ],
    ];
  });
}

function addressOn(result: Result, network: string, family: 4 | 6): string {
  const ip = result.ips.find(
    ({ podNetwork, address }) => podNetwork === network && address.includes(":") === (family === 6),
  );
  if (ip === undefined) throw new Error(`no IPv${family} address on network "${network}"`);
  return ip.address.replace(/\/.*/, "");
}

function ping(from: Pod, address: string, over: string): void {
  const output = from.place.run("ping", "-c", "1", "-W", "3", "-I", over, address);
  const time = /time=([\d.]+) ms/.exec(output)?.[1] ?? "?";
  say(`${from.name} -> ${address} over ${over}: answered after ${time} ms`);
}

function noPing(from: Pod, address: string, over: string): void {
  try {
    from.place.run("ping", "-c", "1", "-W", "1", "-I", over, address);
  } catch {
    say(
      `${from.name} -> ${address} over ${over}: no answer, as it should be: the networks are apart`,
    );
    return;
  }
  throw new Error(`${from.name} reached ${address} over ${over}: the networks are not apart`);
}

function links(place: Place): string[] {
  const list = JSON.parse(place.run("ip", "-j", "link")) as { ifname: string }[];
  return list.map(({ ifname }) => ifname);
}

/** A sample's manifest, with its addresses kept in a folder of the demo instead of the machine's own. */
function sample(file: string, addresses: string): unknown {
  const document = parseDocument(readFileSync(join(samples, file), "utf8"));
  visit(document, {
    Pair(_key, pair) {
      if (!isScalar(pair.key) || pair.key.value !== "ipam" || !isMap(pair.value)) return;
      pair.value.set("dataDir", addresses);
    },
  });
  return document.toString();
}

async function demo(): Promise<void> {
  using lab = new Lab();
  step("A node, and podnetd on it with the networks of conf/samples");
  const node = lab.node();
  const files = readdirSync(samples).filter(
    (name) => name.endsWith(".yaml") && name !== "pod.yaml",
  );
  const addresses = lab.folder();
  const networks = files.map((file) => [file.replace(/\.yaml$/, ""), sample(file, addresses)]);
  await using daemon = await Daemon.start({ lab, node, networks: Object.fromEntries(networks) });
  for (const file of files) say(`network manifest: conf/samples/${file}`);
  const pods = [
    { name: "web", place: lab.pod(), networks: "default,blue,red" },
    { name: "db", place: lab.pod(), networks: "default,blue" },
    { name: "batch", place: lab.pod(), networks: "default,red" },
  ];
  const results = await showAttached(daemon, pods);
  showTraffic(pods, results);
  await takeAway(daemon, pods);
  showNothingLeft(daemon, { node, pods });
  await daemon.stop();
  say("\nDone: podnetd stopped, node and pods are gone.");
}

async function showAttached(daemon: Daemon, pods: readonly Pod[]): Promise<readonly Result[]> {
  step("Three pods: one CNI ADD each, several networks in one call");
  const results: Result[] = [];
  for (const pod of pods) results.push((await call(daemon, "ADD", pod)) as Result);
  const head = ["POD", "NETWORK", "INTERFACE", "ADDRESSES", "GATEWAY", "MAC"];
  const rows = pods.flatMap((pod, place) => {
    const result = results[place];
    return result === undefined ? [] : rowsOf(pod, result);
  });
  say(formatTable([head, ...rows]));
  step(
    'The answer for pod "web" as the runtime gets it: every interface and IP tagged with its network',
  );
  say(JSON.stringify(results[0], null, 2));
  return results;
}

function showTraffic(pods: readonly Pod[], results: readonly Result[]): void {
  step("Traffic");
  const [web, db, batch] = pods;
  const [, dbResult, batchResult] = results;
  if (!web || !db || !batch || !dbResult || !batchResult) throw new Error("three pods expected");
  ping(web, addressOn(dbResult, "blue", 4), "net1");
  ping(web, addressOn(batchResult, "red", 4), "net2");
  ping(db, addressOn(batchResult, "default", 4), "eth0");
  ping(db, addressOn(batchResult, "default", 6), "eth0");
  noPing(db, addressOn(batchResult, "red", 4), "net1");
}

async function takeAway(daemon: Daemon, pods: readonly Pod[]): Promise<void> {
  step("CHECK, then DEL of each pod (twice: DEL may be repeated)");
  for (const pod of pods) {
    await call(daemon, "CHECK", pod);
    await call(daemon, "DEL", pod);
    await call(daemon, "DEL", pod);
    say(`${pod.name}: as it was attached; given back`);
  }
}

function showNothingLeft(
  daemon: Daemon,
  where: { readonly node: Place; readonly pods: readonly Pod[] },
): void {
  step("What is left");
  for (const pod of where.pods) say(`interfaces of ${pod.name}: ${links(pod.place).join(" ")}`);
  const nodeLinks = links(where.node);
  say(`interfaces of the node: ${nodeLinks.join(" ")} (the bridges stay for the next pod)`);
  const records = readdirSync(join(daemon.stateDir, "records"));
  say(`records of podnetd: ${records.length}`);
  const strays = nodeLinks.filter((name) => name.startsWith("veth"));
  const inPods = where.pods.flatMap((pod) => links(pod.place)).filter((name) => name !== "lo");
  if (strays.length + inPods.length + records.length > 0) throw new Error("something is left");
}

if (!existsSync(stub)) throw new Error(`"${stub}" is missing: run make build first`);
await demo();
